"""What Prometheus reads: computed from the control database when it asks."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from tests.services.ports import free_port
from tidemark.clock import ManualClock
from tidemark.control import ControlDatabase, Keyring
from tidemark.errors import UsageError
from tidemark.observe.metrics import ControlCollector, exposition, serve
from tidemark.observe.readings import Watched

CANARY = "canary-77af02"
Samples = dict[tuple[str, ...], float]


class Subject:
    """A subject of a control database, and what its runs leave there."""

    def __init__(self, control: ControlDatabase, clock: ManualClock, name: str = "shop") -> None:
        self._control = control
        self._clock = clock
        self._name = name
        self._runs = 0
        self.address = f"catalog/{name}"

    def begin(self, **detail: Any) -> str:
        self._runs += 1
        run_id = f"{self._name}-{self._runs}"
        self._control.runs.begin(self.address, run_id, detail=detail)
        return run_id

    def ran(self, status: str = "published", took: float = 2.5, **detail: Any) -> None:
        run_id = self.begin()
        self._clock.advance(timedelta(seconds=took))
        self._control.runs.finish(run_id, status, detail=detail)

    def mark_moved(self) -> None:
        self._control.marks.move(self.address, None, CANARY, snapshot=None, run_id=None, actor="somebody", reason="a test")


@pytest.fixture
def shop(control: ControlDatabase, clock: ManualClock) -> Subject:
    return Subject(control, clock)


@pytest.fixture
def collector(control_url: str, clock: ManualClock) -> Iterator[ControlCollector]:
    with closing(ControlCollector(control_url, clock=clock)) as collector:
        yield collector


def samples(text: str) -> Samples:
    """Every sample by its name, its subject and its other label, read by Prometheus' own parser."""

    def key(name: str, labels: dict[str, str]) -> tuple[str, ...]:
        return (name, *(labels[label] for label in sorted(labels, key=lambda label: label != "subject")))

    families = text_string_to_metric_families(text)
    return {key(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def test_runs_are_counted_by_subject_and_status(shop, collector, control, clock):
    shop.ran("published")
    shop.ran("published")
    shop.ran("failed")
    Subject(control, clock, "erp").ran("unchanged", took=4)
    found = samples(exposition(collector))
    assert found["tidemark_up",] == 1
    assert {key[1:]: value for key, value in found.items() if key[0] == "tidemark_runs_total"} == {
        ("catalog/erp", "unchanged"): 1,
        ("catalog/shop", "failed"): 1,
        ("catalog/shop", "published"): 2,
    }
    assert found["tidemark_run_seconds_total", "catalog/shop"] == pytest.approx(7.5, abs=0.001)
    assert found["tidemark_run_seconds_total", "catalog/erp"] == pytest.approx(4, abs=0.001)


def test_a_run_that_is_under_way_is_no_part_of_what_only_grows(shop, collector):
    shop.begin()
    found = samples(exposition(collector))
    assert found["tidemark_runs_running", "catalog/shop"] == 1
    assert not [key for key in found if key[0] == "tidemark_runs_total"]


def test_runs_that_upkeep_removed_from_the_ledger_count_on(shop, collector, clock, control):
    for _ in range(5):
        shop.ran("published", took=2)
    shop.ran("failed", took=1)
    before = samples(exposition(collector))
    clock.advance(timedelta(days=2))
    assert control.runs.forget("catalog/shop", newest=1, before=clock.now(), kept=()) == 4
    assert control.runs.forget("catalog/shop", newest=1, before=clock.now(), kept=()) == 0
    after = samples(exposition(collector))
    for key in (("tidemark_runs_total", "catalog/shop", "published"), ("tidemark_runs_total", "catalog/shop", "failed")):
        assert after[key] == before[key]
    assert after["tidemark_run_seconds_total", "catalog/shop"] == pytest.approx(11, abs=0.01)


def test_steps_and_rows_are_those_of_the_newest_run_that_ended(shop, collector):
    shop.ran(took=9, seconds={"plan": 1.5, "gone": 2}, rows={"read": 900})
    shop.ran("failed", took=3, seconds={"plan": 0.25}, rows={"read": 12, "landed": 10})
    shop.begin(seconds={"plan": 77})
    found = samples(exposition(collector))
    assert {key[2]: value for key, value in found.items() if key[0] == "tidemark_step_seconds"} == {"plan": 0.25}
    assert {key[2]: value for key, value in found.items() if key[0] == "tidemark_last_run_rows"} == {
        "read": 12,
        "landed": 10,
    }
    assert found["tidemark_last_run_seconds", "catalog/shop"] == 3
    assert {key[2]: value for key, value in found.items() if key[0] == "tidemark_last_run_status"} == {"failed": 1}


def test_entries_of_a_run_that_are_no_numbers_are_left_out(shop, collector):
    shop.ran(rows={"read": 1, "late": {"most": 3}, "whole": True, "word": CANARY}, seconds=None, secret=CANARY)
    text = exposition(collector)
    assert {key[2] for key in samples(text) if key[0] == "tidemark_last_run_rows"} == {"read"}
    assert CANARY not in text


def test_the_age_of_a_subject_is_that_of_its_last_run_that_counts(shop, collector, clock):
    shop.ran("published")
    counted = clock.now()
    clock.advance(timedelta(minutes=10))
    shop.ran("failed", took=60)
    found = samples(exposition(collector))
    assert found["tidemark_last_counting_run_age_seconds", "catalog/shop"] == 660
    assert found["tidemark_last_counting_run_timestamp_seconds", "catalog/shop"] == counted.timestamp()


def test_the_age_of_a_subject_passes_over_runs_that_did_not_look_for_what_is_new(shop, collector, clock, control):
    shop.ran("published")
    clock.advance(timedelta(minutes=10))
    for mode in ("upkeep", "rewind", "rollback"):
        control.runs.begin("catalog/shop", mode)
        control.runs.finish(mode, "published", mode=mode)
    assert samples(exposition(collector))["tidemark_last_counting_run_age_seconds", "catalog/shop"] == 600


def test_the_age_of_a_mark_is_shown_and_its_value_is_not(shop, collector, clock):
    shop.mark_moved()
    moved = clock.now()
    clock.advance(timedelta(hours=2))
    text = exposition(collector)
    assert samples(text)["tidemark_mark_age_seconds", "catalog/shop"] == 7200
    assert samples(text)["tidemark_mark_timestamp_seconds", "catalog/shop"] == moved.timestamp()
    assert CANARY not in text


def test_a_lease_is_held_until_it_is_released_or_has_ended(shop, control, collector, clock):
    lease = ("tidemark_lease_held", "catalog/shop")
    shop.begin()
    with control.leases.hold("catalog/shop", "run-1"):
        assert samples(exposition(collector))[lease] == 1
        clock.advance(timedelta(hours=1))
        assert samples(exposition(collector))[lease] == 0
    with control.leases.hold("catalog/shop", "run-2"):
        pass
    assert samples(exposition(collector))[lease] == 0


@pytest.mark.parametrize("tenants", [(), ("east",), ("east", "west")])
def test_marks_of_streams_are_those_of_the_tenants_of_the_configuration(ordinary_control_url, clock, tenants):
    control = ControlDatabase(ordinary_control_url, clock)
    for tenant in ("east", "west"):
        streams = control.sealed_marks(tenant, Keyring({"k1": bytes(32)}))
        address = f"stream/{tenant}/shop/carts"
        streams.move(address, None, CANARY, field="changed", run_id=None, actor="somebody", reason="a test")
    Subject(control, clock).mark_moved()
    control.close()
    with closing(ControlCollector(ordinary_control_url, tenants, clock)) as collector:
        text = exposition(collector)
    found = {key[1] for key in samples(text) if key[0] == "tidemark_mark_age_seconds"}
    assert found == {"catalog/shop", *(f"stream/{tenant}/shop/carts" for tenant in tenants)}
    assert CANARY not in text


def test_a_mark_that_was_reset_has_no_age(shop, control, collector):
    shop.mark_moved()
    control.marks.reset("catalog/shop", actor="somebody", reason="a test")
    assert not [key for key in samples(exposition(collector)) if key[0] == "tidemark_mark_age_seconds"]


def test_a_scrape_asks_as_many_questions_of_many_subjects_as_of_one(control, collector, clock):
    Subject(control, clock, "first").ran()
    exposition(collector)
    asked: list[str] = []
    sa.event.listen(collector._control._open(), "before_cursor_execute", lambda *given: asked.append(given[2]))
    exposition(collector)
    of_one = len(asked)
    for number in range(20):
        Subject(control, clock, f"s{number}").ran()
    asked.clear()
    exposition(collector)
    assert len([sql for sql in asked if "tidemark_" in sql]) == 5
    assert len(asked) == of_one


@pytest.mark.fast
def test_a_database_that_is_not_there_is_a_metric_and_is_not_created(tmp_path: Path, caplog) -> None:
    collector = ControlCollector(f"sqlite:///{tmp_path}/none/control.db")
    assert samples(exposition(collector)) == {("tidemark_up",): 0}
    exposition(collector)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "once, however often it is asked"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast
def test_a_server_that_is_away_is_a_metric_and_its_password_is_not_logged(caplog) -> None:
    collector = ControlCollector(f"postgresql://tidemark:{CANARY}@127.0.0.1:{free_port()}/control")
    assert samples(exposition(collector)) == {("tidemark_up",): 0}
    assert "cannot be opened" in caplog.text
    assert "Trying again" not in caplog.text, "a scrape has no time to ride out an outage"
    assert CANARY not in caplog.text


@pytest.mark.fast
def test_a_database_of_another_version_is_not_migrated_by_a_scrape(tmp_path: Path, caplog) -> None:
    url = f"sqlite:///{tmp_path}/control.db"
    sa.create_engine(url).connect().close()
    assert samples(exposition(ControlCollector(url))) == {("tidemark_up",): 0}
    assert "another schema" in caplog.text
    assert sa.inspect(sa.create_engine(url)).get_table_names() == []


@pytest.mark.fast
def test_a_server_is_not_waited_for_longer_than_a_scrape_may_take() -> None:
    assert Watched("postgresql://h/d")._url.query["connect_timeout"] == "3"
    assert Watched("postgresql://h/d?connect_timeout=7")._url.query["connect_timeout"] == "7"


def test_what_waits_in_the_queue_comes_from_whoever_knows(control, control_url):
    control.migrate()
    with closing(ControlCollector(control_url, waiting=lambda: {"catalog/shop": 2})) as collector:
        found = samples(exposition(collector))
    assert found["tidemark_waiting_runs", "catalog/shop"] == 2
    assert found["tidemark_dagster_up",] == 1


def test_a_scheduler_that_is_away_takes_nothing_else_with_it(shop, control_url, caplog):
    def away() -> dict[str, int]:
        raise ConnectionError(CANARY)

    shop.ran()
    with closing(ControlCollector(control_url, waiting=away)) as collector:
        found = samples(exposition(collector))
    assert found["tidemark_dagster_up",] == 0
    assert found["tidemark_up",] == 1
    assert "ConnectionError" in caplog.text
    assert CANARY not in caplog.text


@contextmanager
def served(collector: ControlCollector) -> Iterator[str]:
    port = free_port()
    server, thread = serve(collector, port, "127.0.0.1")
    yield f"http://127.0.0.1:{port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_scrape_over_http_sees_runs_as_they_come(shop, control, collector):
    control.migrate()
    with served(collector) as url:
        for runs in (1, 2, 3):
            shop.ran()
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                assert samples(answer.read().decode())["tidemark_runs_total", "catalog/shop", "published"] == runs


@pytest.mark.fast
def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    collector = ControlCollector(f"sqlite:///{tmp_path}/control.db")
    with served(collector) as url, pytest.raises(UsageError, match="nobody can listen on 127"):
        serve(collector, int(url.split(":")[2].partition("/")[0]), "127.0.0.1")


@pytest.mark.fast
def test_names_and_units_are_as_prometheus_wants_them(tmp_path: Path) -> None:
    control = ControlDatabase(f"sqlite:///{tmp_path}/control.db")
    control.migrate()
    collector = ControlCollector(f"sqlite:///{tmp_path}/control.db", waiting=dict)
    for family in collector.collect():
        assert family.name.startswith("tidemark_")
        assert family.documentation.endswith(".")
        assert not family.name.endswith("_total"), "the client adds it to counters"
        assert "_seconds" not in family.name or family.name.endswith("_seconds")
    control.close()


@pytest.mark.fast
def test_help_imports_neither_prometheus_nor_openlineage() -> None:
    code = "import sys; from tidemark.cli.app import build; build(); import tidemark.observe; print([m for m in sys.modules if m.split('.')[0] in ('prometheus_client', 'openlineage', 'dagster')])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
