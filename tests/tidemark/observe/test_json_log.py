"""Logs for programs."""

import io
import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from tidemark import observe
from tidemark.clock import ManualClock
from tidemark.config import Config, StoreSettings
from tidemark.errors import ConfigError, StateError
from tidemark.observe import json_log
from tidemark.runs.events import Advanced, RunEnded, RunStarted, StepEnded, StepStarted, emit

pytestmark = pytest.mark.fast

CANARY = "canary-4be1"
RUN = {"subject": "catalog/shop", "run_id": "r1"}


@pytest.fixture
def lines():
    """What has been written since the test began, line by line."""
    stream = io.StringIO()
    stop = json_log.start(stream, ManualClock(datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)))
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    stop()


def test_every_event_is_a_line_with_its_fields(lines):
    emit(RunStarted(**RUN, dagster_run="d1"))
    emit(StepStarted(**RUN, step="plan"))
    emit(StepEnded(**RUN, step="plan", seconds=1.50004))
    emit(Advanced(**RUN, unit="slice", done=1, total=None, rows=10, note="öß\n"))
    emit(RunEnded(**RUN, status="published", mode="full", reason="no state", seconds=2, rows={"read": 3}, writes=("a.b",)))
    at = {"time": "2026-01-02T03:04:05.678Z", "level": "info"}
    assert lines() == [
        {**at, "event": "run_started", **RUN, "dagster_run": "d1"},
        {**at, "event": "step_started", **RUN, "step": "plan"},
        {**at, "event": "step_ended", **RUN, "step": "plan", "seconds": 1.5},
        {**at, "event": "advanced", **RUN, "unit": "slice", "done": 1, "rows": 10, "note": "öß\n"},
        {
            **at, "event": "run_ended", **RUN, "status": "published", "mode": "full", "reason": "no state",
            "seconds": 2, "rows": {"read": 3}, "writes": ["a.b"],
        },
    ]  # fmt: skip


def test_what_failed_is_an_error(lines):
    emit(StepEnded(**RUN, step="plan", seconds=1, error="SourceUnreachable"))
    emit(RunEnded(**RUN, status="failed", mode=None, reason=None, seconds=1, error="SourceUnreachable: nothing answers"))
    emit(RunEnded(**RUN, status="abandoned", mode=None, reason=None, seconds=1))
    assert [line["level"] for line in lines()] == ["error"] * 3
    assert lines()[1]["error"] == "SourceUnreachable: nothing answers"


def test_log_records_of_ours_are_lines_and_those_of_others_are_not(lines):
    logging.getLogger("tidemark.control.leases").info("the lease of %s could not be extended", "catalog/shop")
    logging.getLogger("spark_code.lake").warning("slow")
    logging.getLogger("tidemark_of_somebody_else").error(CANARY)
    logging.getLogger("dagster").error(CANARY)
    assert [(line["level"], line["logger"], line["message"]) for line in lines()] == [
        ("info", "tidemark.control.leases", "the lease of catalog/shop could not be extended"),
        ("warning", "spark_code.lake", "slow"),
    ]
    assert all(line["time"].endswith("Z") for line in lines())


def test_the_words_of_a_foreign_error_are_left_out_and_its_place_is_not(lines):
    log = logging.getLogger("tidemark.runs")
    for error in (ValueError(CANARY), StateError("catalog/shop: the mark is gone.")):
        try:
            raise error
        except Exception:
            log.warning("it failed", exc_info=True)
    assert [line["error"] for line in lines()] == ["ValueError", "StateError: catalog/shop: the mark is gone."]
    assert lines()[0]["at"].rpartition(":")[0] == __file__
    assert CANARY not in json.dumps(lines())


def test_a_stream_that_nobody_reads_any_more_stops_nothing():
    stream = io.StringIO()
    stop = json_log.start(stream)
    stream.close()
    emit(RunStarted(**RUN))
    logging.getLogger("tidemark").warning("on we go")
    stop()


def test_after_the_end_nothing_is_written_and_levels_are_as_before(monkeypatch):
    log = logging.getLogger("tidemark")
    monkeypatch.setattr(log, "level", logging.ERROR)
    stream = io.StringIO()
    json_log.start(stream)()
    emit(RunStarted(**RUN))
    log.error("to whom it may concern")
    assert stream.getvalue() == ""
    assert log.level == logging.ERROR


def test_the_environment_requests_it_and_the_stream_is_the_one_of_the_start(monkeypatch, capsys):
    monkeypatch.setenv("TIDEMARK_LOG", "json")
    stop = observe.start(Config(store=StoreSettings(url="x")))
    with monkeypatch.context() as dagster:
        dagster.setattr(sys, "stderr", io.StringIO())
        emit(RunStarted(**RUN))
    stop()
    emit(RunStarted(**RUN))
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["run_started"]


def test_two_starts_in_one_process_write_each_line_once(monkeypatch, capsys):
    monkeypatch.setenv("TIDEMARK_LOG", "json")
    config = Config(store=StoreSettings(url="x"))
    stop, second = observe.start(config), observe.start(config)
    emit(RunStarted(**RUN))
    second()
    emit(RunStarted(**RUN))
    stop()
    assert len(capsys.readouterr().err.splitlines()) == 2
    observe.start(config)()


def test_without_a_request_nothing_is_attached(monkeypatch, capsys):
    monkeypatch.delenv("TIDEMARK_LOG", raising=False)
    stop = observe.start(Config(store=StoreSettings(url="x")))
    emit(RunStarted(**RUN))
    stop()
    assert capsys.readouterr().err == ""


def test_a_form_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.setenv("TIDEMARK_LOG", "xml")
    with pytest.raises(ConfigError, match="Allowed: text, json"):
        observe.start(Config(store=StoreSettings(url="x")))
