"""Databases of versions 0001 and 0002, with rows of all three systems, come to one store under addresses."""

import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from tests.tidemark.control.conftest import START
from tidemark.control import ControlDatabase, Keyring
from tidemark.control.migration import MIGRATIONS
from tidemark.control.process import this_process
from tidemark.control.url import control_url as parsed_url
from tidemark.errors import RunInProgress, StateError

SHOP, GONE, CARTS, OTHERS, MODEL = (
    "postgresql/1700000000", "sqlite/2", "t1/shop/shop.carts", "t2/shop/shop.carts", "silver.carts",
)  # fmt: skip
KEYS = Keyring({"old": bytes(range(32))})
EARLIER, AT = "2026-01-01 00:00:00", "2026-01-02 03:04:05.678901"


@pytest.fixture
def control_url(ordinary_control_url: str) -> str:
    return ordinary_control_url


@pytest.fixture
def engine(control_url):
    engine = sa.create_engine(parsed_url(control_url))
    yield engine
    engine.dispose()


def upgraded(engine: sa.Engine, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def put(engine: sa.Engine, table: str, *rows: dict[str, object], tenant: str = "") -> None:
    zone = "+00" if engine.dialect.name == "postgresql" else ""
    moments = ("started_at", "finished_at", "moved_at", "at", "updated_at", "held_since", "expires_at")
    with engine.begin() as connection:
        if tenant and engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.set_config("tidemark.tenant", tenant, True)))
        for row in rows:
            names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
            given = {name: f"{value}{zone}" if name in moments else value for name, value in row.items()}
            connection.execute(sa.text(f"INSERT INTO {table} ({names}) VALUES ({values})"), given)


def run(number: int, system: str, subject: str, run_id: str, status: str, **more: object) -> dict[str, object]:
    detail = json.dumps(more.pop("detail", {}))
    row = {"number": number, "system": system, "subject": subject, "run_id": run_id, "status": status}
    return {**row, "started_at": AT, "detail": detail, **more}


def mark(subject: str, version: int, value: str, **more: object) -> dict[str, object]:
    return {"subject": subject, "version": version, "value": value, "moved_at": AT, **more}


def moved(subject: str, version: int, value: str, reason: str = "run", **more: object) -> dict[str, object]:
    versions = {"from_version": version - 1 or None, "to_version": version}
    return {"subject": subject, **versions, "value": value, "actor": "ann@ship", "reason": reason, "at": AT, **more}


def put_0001(engine: sa.Engine) -> None:
    me = this_process()
    put(
        engine, "tidemark_runs",
        run(1, "catalog", SHOP, "c1", "published", detail={"connection": "old_name"}, mode="full", snapshot=7, marker="m"),
        run(2, "catalog", SHOP, "c2", "rolled-back", detail={"connection": "shop"}, mode="full", snapshot=7),
        run(3, "catalog", GONE, "g1", "failed", error="SourceError: away"),
        run(4, "catalog", SHOP, "c3", "abandoned", detail={"connection": "shop"}),
        run(5, "catalog", SHOP, "c4", "running", detail={"connection": "shop"}),
        run(6, "connectors", CARTS, "s1", "published", detail={"landed": 3}, finished_at=AT),
        run(70, "models", MODEL, "m1", "unchanged", base_snapshot=2**62),
    )  # fmt: skip
    put(
        engine, "tidemark_marks",
        mark(f"catalog/{SHOP}", 3, "2026-01-01T00:00:00Z", snapshot=7),
        mark(f"catalog/{GONE}", 1, "no audit row", run_id="g0"),
        mark(f"models/{MODEL}", 2, '{"form": 1, "state": 2}', run_id="m1"),
        mark("models/silver.reset", 2, '{"form": 1, "reset": true}'),
    )  # fmt: skip
    put(
        engine, "tidemark_mark_audit",
        moved(f"catalog/{SHOP}", 1, "2026-01-02T00:00:00Z", run_id="c1", snapshot=7),
        moved(f"catalog/{SHOP}", 2, "2026-01-03T00:00:00Z", "rollback to run c1", run_id="c2", snapshot=7),
        moved(f"catalog/{SHOP}", 3, "2026-01-01T00:00:00Z", "rewound by hand", snapshot=7),
        moved(f"models/{MODEL}", 1, '{"form": 1, "state": 1}', run_id="m0"),
        moved(f"models/{MODEL}", 2, '{"form": 1, "state": 2}', run_id="m1"),
        moved("models/silver.reset", 1, '{"form": 1}', run_id="m9"),
        moved("models/silver.reset", 2, '{"form": 1, "reset": true}', "by hand"),
    )  # fmt: skip
    held = {"run_id": "c4", "host": me.host, "boot_id": me.boot_id, "pid": me.pid, "process_started": me.started}
    put(
        engine, "tidemark_leases",
        {"subject": f"catalog/{SHOP}", "token": 5, **held, "held_since": AT, "expires_at": "2026-01-02 03:05:05"},
        {"subject": f"connectors/{CARTS}", "token": 9},
        {"subject": f"models/{MODEL}", "token": 2},
    )  # fmt: skip


def bound_as_before(tenant: str, version: int) -> str:
    """Sealed as version 0002 did: together with tenant, connector, stream and version."""
    from base64 import b64encode

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    bound = json.dumps(["v1", "old", tenant, "shop", "shop.carts", version]).encode()
    nonce = bytes([version]) * 12
    body = nonce + AESGCM(bytes(range(32))).encrypt(nonce, f"{tenant} value {version}".encode(), bound)
    return f"v1:old:{b64encode(body).decode()}"


def put_0002(engine: sa.Engine) -> None:
    for tenant, versions, field in (("t1", 2, "LastUpdated"), ("t2", 2, None)):
        whose = {"tenant_id": tenant, "connector_id": "shop", "stream_id": "shop.carts"}
        put(
            engine, "tidemark_stream_state",
            {**whose, "version": versions, "cursor_field": field, "run_id": "s1", "updated_at": AT}, tenant=tenant,
        )  # fmt: skip
        for version in (1, 2) if field else (1,):
            sealed = {"cursor_field": "LastUpdated", "sealed": bound_as_before(tenant, version)}
            put(engine, "tidemark_stream_value", {**whose, "version": version, **sealed}, tenant=tenant)
        said = {"actor": "ann@ship", "reason": "why"}
        second = {"kind": "rewind", "restored_version": 1} if field else {"kind": "reset"}
        put(
            engine, "tidemark_stream_audit",
            {**whose, **said, "kind": "commit", "to_version": 1, "run_id": "s1", "at": EARLIER},
            {**whose, **said, **second, "from_version": 1, "to_version": 2, "at": AT},
            tenant=tenant,
        )  # fmt: skip


@pytest.fixture
def migrated(control: ControlDatabase, engine: sa.Engine) -> ControlDatabase:
    upgraded(engine, "0001")
    put_0001(engine)
    upgraded(engine, "0002")
    put_0002(engine)
    control.migrate()
    return control


def test_the_runs_of_a_connection_are_found_under_its_name(migrated):
    history = migrated.runs.history("catalog/shop")
    assert [record.run_id for record in history] == ["c4", "c3", "c2", "c1"]
    assert (history[-1].mode, history[-1].snapshot, history[-1].marker) == ("full", 7, "m")
    assert history[-1].detail == {"connection": "old_name"}
    assert history[0].started_at == datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def test_a_connection_that_no_run_names_is_called_by_app_and_id(migrated):
    assert [(record.run_id, record.error) for record in migrated.runs.history("catalog/sqlite_2")] == [
        ("g1", "SourceError: away")
    ]
    assert migrated.marks.get("catalog/sqlite_2").value == "no audit row"


def test_a_rollback_becomes_a_run_that_published(migrated):
    rolled_back = migrated.runs.find("catalog/shop", "c2")
    assert (rolled_back.status, rolled_back.mode, rolled_back.snapshot) == ("published", "rollback", 7)
    assert migrated.runs.latest("catalog/shop").run_id == "c2"


def test_an_abandoned_run_says_so_and_a_running_one_runs_on(migrated):
    assert migrated.runs.find("catalog/shop", "c3").error.startswith("RunAbandoned: ")
    assert [record.run_id for record in migrated.runs.running("catalog/shop")] == ["c4"]
    assert migrated.runs.finish("c4", "published").status == "published"


def test_streams_and_models_are_found_under_their_addresses(migrated):
    [stream] = migrated.runs.history(f"stream/{CARTS}")
    assert (stream.run_id, stream.detail, stream.finished_at) == ("s1", {"landed": 3}, stream.started_at)
    [model] = migrated.runs.history(f"model/{MODEL}")
    assert (model.run_id, model.status, model.base_snapshot, model.dagster_run) == ("m1", "unchanged", 2**62, None)


def test_the_next_run_is_newer_than_all_before_it(migrated):
    migrated.runs.begin(f"model/{MODEL}", "m2")
    assert [record.run_id for record in migrated.runs.history(f"model/{MODEL}")] == ["m2", "m1"]
    with pytest.raises(StateError, match="new run id"):
        migrated.runs.begin("catalog/shop", "s1")


def test_the_mark_of_a_connection_keeps_version_values_and_audit(migrated):
    found = migrated.marks.get("catalog/shop")
    assert (found.version, found.value, found.snapshot, found.run_id) == (3, "2026-01-01T00:00:00Z", 7, None)
    assert migrated.marks.value_of("catalog/shop", 2) == "2026-01-03T00:00:00Z"
    told = [(row.kind, row.from_version, row.to_version, row.run_id) for row in migrated.marks.audit("catalog/shop")]
    assert told == [("rewind", 2, 3, None), ("commit", 1, 2, "c2"), ("commit", None, 1, "c1")]
    assert migrated.marks.audit("catalog/shop")[0].reason == "rewound by hand"


def test_the_marks_of_models_are_kept_and_one_that_was_reset_has_none(migrated):
    assert migrated.marks.get(f"model/{MODEL}").value == '{"form": 1, "state": 2}'
    assert migrated.marks.get("model/silver.reset") is None
    assert migrated.marks.version("model/silver.reset") == 2
    assert [row.kind for row in migrated.marks.audit("model/silver.reset")] == ["reset", "commit"]
    assert migrated.marks.value_of("model/silver.reset", 1) == '{"form": 1}'


def test_the_sealed_marks_of_streams_open_in_every_version(migrated):
    marks = migrated.sealed_marks("t1", KEYS)
    found = marks.get(f"stream/{CARTS}")
    assert (found.version, found.value, found.field, found.run_id) == (2, "t1 value 2", "LastUpdated", "s1")
    assert found.moved_at == START
    told = [(row.kind, row.to_version, row.restored_version, row.tenant) for row in marks.audit(f"stream/{CARTS}")]
    assert told == [("rewind", 2, 1, "t1"), ("commit", 1, None, "t1")]
    assert marks.rewind(f"stream/{CARTS}", to_version=1, actor="a", reason="r").value == "t1 value 1"


def test_a_stream_that_was_reset_counts_on(migrated):
    marks = migrated.sealed_marks("t2", KEYS)
    assert marks.get(f"stream/{OTHERS}") is None
    assert marks.version(f"stream/{OTHERS}") == 2
    assert marks.value_of(f"stream/{OTHERS}", 1) == "t2 value 1"
    assert marks.move(f"stream/{OTHERS}", None, "x", field="f", run_id="r", actor="a", reason="r").version == 3


def test_leases_keep_their_holders_and_tokens(migrated):
    with pytest.raises(RunInProgress, match="run c4"), migrated.leases.hold("catalog/shop", "c5"):
        pass
    for subject, token in ((f"stream/{CARTS}", 9), (f"model/{MODEL}", 2)):
        with migrated.leases.hold(subject, "r") as lease:
            assert lease.token == token + 1


def test_nothing_of_the_old_tables_is_left(migrated, engine):
    assert sorted(sa.inspect(engine).get_table_names()) == [
        "tidemark_forgotten_runs",
        "tidemark_leases",
        "tidemark_mark_audit",
        "tidemark_mark_values",
        "tidemark_marks",
        "tidemark_runs",
        "tidemark_version",
    ]
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            left = connection.execute(sa.text("SELECT relname FROM pg_class WHERE relname LIKE '%0002%'")).all()
            assert left == []
            names = connection.execute(
                sa.text("SELECT indexname FROM pg_indexes WHERE tablename = 'tidemark_runs' ORDER BY 1")
            )
            expected = ["of_dagster_run", "of_subject", "pkey", "run_id_key"]
            assert names.scalars().all() == [f"tidemark_runs_{name}" for name in expected]


def test_two_connections_never_come_to_one_address(control, engine):
    upgraded(engine, "0002")
    put(
        engine, "tidemark_runs",
        run(1, "catalog", "sqlite/1", "r1", "published", detail={"connection": "shop"}),
        run(2, "catalog", "sqlite/2", "r2", "published", detail={"connection": "shop"}),
        run(3, "catalog", "sqlite/3", "r3", "published", detail={"connection": "sqlite_1"}),
    )  # fmt: skip
    control.migrate()
    found = {each.newest.run_id: each.newest.subject for each in control.runs.newest()}
    assert found["r2"] == "catalog/shop"  # the newest of that name
    assert found["r3"] == "catalog/sqlite_1"  # its own name, which another would have got from app and id
    assert len(set(found.values())) == 3
