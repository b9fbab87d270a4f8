"""Lineage events, sent to a real server or into a file."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import requests
import yaml
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset, parent_run

from tests.services.lineage import LineageBackend, lineage_backend
from tests.services.ports import free_port
from tidemark import observe
from tidemark.clock import ManualClock
from tidemark.config import Config, load_config
from tidemark.control.runs import COUNTING
from tidemark.errors import ConfigError
from tidemark.observe import lineage
from tidemark.runs.events import RunEnded, RunStarted, StepStarted, emit

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parents[3]
CANARY = "canary-e01c"
RUN_ID = "3f1c7a52-7f3c-4b53-93d5-0e6d2d1c8d11"
RUN = {"subject": "model/silver.carts", "run_id": RUN_ID}
Start = Callable[..., None]


def configured(folder: Path, **openlineage: Any) -> Config:
    (folder / "tidemark.yaml").write_text(yaml.safe_dump({"store": "state", "openlineage": openlineage}))
    return load_config(folder / "tidemark.yaml")


@pytest.fixture
def backend() -> Iterator[LineageBackend]:
    with lineage_backend() as server:
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Begins to send as the settings say; what is under way is sent when the test ends."""
    stops: list[Callable[[], None]] = []

    def started(**settings: Any) -> None:
        clock = ManualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        stops.append(lineage.start(configured(tmp_path, **settings), clock))

    yield started
    for stop in stops:
        stop()


def ended(status: str = "published", **more: Any) -> RunEnded:
    return RunEnded(**{**RUN, "mode": "incremental", "reason": "state found", "seconds": 2.5, "status": status, **more})


def as_client_reads(event: dict[str, Any]) -> RunEvent:
    """The event as the client's own classes take it: they refuse what the specification does not allow."""

    def facets(of: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
        plain = {name: {key: value for key, value in facet.items() if key[0] != "_"} for name, facet in of.items()}
        return {name: kinds[name](**plain[name]) for name in plain if name in kinds}

    def parent(run: dict[str, Any], job: dict[str, Any]) -> Any:
        return parent_run.ParentRunFacet(run=parent_run.Run(**run), job=parent_run.Job(**job))

    of_runs = {"errorMessage": error_message_run.ErrorMessageRunFacet, "parent": parent}
    of_outputs = {"outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet}
    outputs = [{**each, "outputFacets": facets(each.get("outputFacets", {}), of_outputs)} for each in event["outputs"]]
    return RunEvent(
        eventType=RunState(event["eventType"]),
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=Run(event["run"]["runId"], facets(event["run"].get("facets", {}), of_runs)),
        job=Job(**event["job"]),
        inputs=[InputDataset(**each) for each in event["inputs"]],
        outputs=[OutputDataset(**each) for each in outputs],
    )


def test_a_run_is_a_start_and_a_completion(start, backend, tmp_path):
    start(url=backend.url, namespace="lake-of-tests")
    emit(RunStarted(**RUN))
    emit(StepStarted(**RUN, step="plan"))
    rows = {"inserted": 3, "updated": 4, "deleted": 9}
    emit(ended(rows=rows, reads=("lake.bronze.carts", "lake.bronze.items"), writes=("lake.silver.carts",)))
    first, last = map(as_client_reads, backend.events)
    assert (first.eventType, last.eventType) == (RunState.START, RunState.COMPLETE)
    assert {first.run.runId, last.run.runId} == {RUN_ID}
    assert {(event.job.namespace, event.job.name) for event in (first, last)} == {("lake-of-tests", "model/silver.carts")}
    assert first.eventTime == "2026-01-02T03:04:05.000Z"
    assert [(table.namespace, table.name) for table in last.inputs] == [
        (f"file://{tmp_path}/state/lake", "bronze.carts"),
        (f"file://{tmp_path}/state/lake", "bronze.items"),
    ]
    assert [(table.name, table.outputFacets["outputStatistics"].rowCount) for table in last.outputs] == [("silver.carts", 7)]
    facet = backend.events[1]["run"]["facets"]["tidemark_run"]
    assert {key: facet[key] for key in ("status", "mode", "reason", "seconds", "rows")} == {
        "status": "published", "mode": "incremental", "reason": "state found", "seconds": 2.5, "rows": rows,
    }  # fmt: skip
    assert facet["_producer"].startswith("urn:tidemark:")


@pytest.mark.parametrize(
    ("status", "error", "state"),
    [
        *((status, None, "COMPLETE") for status in COUNTING),
        ("failed", "SourceUnreachable: nothing answers", "FAIL"),
        ("failed", "Interrupted: the run was stopped", "ABORT"),
        ("abandoned", "RunAbandoned: its process was killed", "ABORT"),
    ],
)
def test_every_end_has_its_state_and_its_error(start, backend, status, error, state):
    start(url=backend.url)
    emit(ended(status, error=error))
    assert [event["eventType"] for event in backend.events] == [state]
    facets = as_client_reads(backend.events[0]).run.facets
    assert (facets["errorMessage"].message if error else None) == error
    assert "errorMessage" in facets or not error


def test_rows_of_several_tables_are_counted_for_none_of_them(start, backend):
    start(url=backend.url)
    emit(ended(rows={"inserted": 3}, writes=("a.b", "a.c")))
    assert [table.get("outputFacets") for table in backend.events[0]["outputs"]] == [{}, {}]


def test_the_dagster_run_is_the_parent_of_both_events(start, backend):
    start(url=backend.url)
    dagster_run = str(uuid4())
    emit(RunStarted(**RUN, dagster_run=dagster_run))
    emit(ended())
    parents = [as_client_reads(event).run.facets["parent"] for event in backend.events]
    assert [(parent.run.runId, parent.job.name) for parent in parents] == [(dagster_run, "dagster/model/silver.carts")] * 2


def test_a_run_that_is_the_dagster_run_is_not_its_own_parent(start, backend):
    start(url=backend.url)
    emit(RunStarted(**RUN, dagster_run=RUN_ID))
    emit(ended())
    assert [event["run"]["facets"].get("parent") for event in backend.events] == [None, None]


def test_an_id_that_is_no_uuid_becomes_the_same_one_in_every_process():
    assert lineage.run_uuid("20260102-shop") == "a6c062d6-299a-5b58-b633-93d1d0d72cad"
    assert UUID(lineage.run_uuid("20260102-shop")).version == 5
    assert lineage.run_uuid(RUN_ID.upper()) == RUN_ID


def test_the_key_goes_into_the_header_and_nowhere_else(start, backend, caplog):
    caplog.set_level(logging.DEBUG)
    start(**{"url": backend.url + "/below", "api-key": CANARY})
    emit(ended())
    assert backend.requests == [("/below/api/v1/lineage", f"Bearer {CANARY}")]
    assert CANARY not in json.dumps(backend.events)
    assert CANARY not in caplog.text


def test_a_backend_that_is_away_is_logged_once_and_stops_nothing(start, caplog):
    start(url=f"http://127.0.0.1:{free_port()}")
    for _ in range(3):
        emit(RunStarted(**RUN))
        emit(ended())
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "gets no events (ConnectionError)" in warnings[0]


def test_a_backend_that_refuses_is_logged_with_its_answer_and_again_when_it_works(start, backend, caplog):
    caplog.set_level(logging.INFO)
    start(url=backend.url)
    backend.status = 401
    emit(ended())
    backend.status = 503
    emit(ended())
    backend.status = 201
    emit(ended())
    backend.status = 500
    emit(ended())
    said = [record.getMessage() for record in caplog.records if record.name.startswith("tidemark")]
    parts = ("HTTPError 401", "can be reached again", "HTTPError 500")
    assert [part in words for part, words in zip(parts, said, strict=True)] == [True] * 3
    assert len(backend.requests) == 4, "nothing is tried again"
    assert len(backend.events) == 1


def test_a_backend_that_never_answers_delays_a_run_by_the_time_out_only(start, backend, monkeypatch):
    monkeypatch.setattr(lineage, "PATIENCE", 3_600)  # of a request: what ends the waiting is not the request
    backend.speaks.clear()
    start(url=backend.url)
    monkeypatch.setattr(lineage, "PATIENCE", 0.05)
    emit(RunStarted(**RUN))
    emit(ended())
    assert backend.events == []


def test_a_request_has_a_time_out_of_its_own(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(lineage, "PATIENCE", 0.05)
    backend.speaks.clear()
    transport = lineage._transport(configured(tmp_path, url=backend.url).openlineage)
    event = RunEvent(eventTime="2026-01-02T03:04:05Z", run=Run(RUN_ID), job=Job("n", "j"))
    assert transport.timeout == 0.05
    with pytest.raises(requests.exceptions.ReadTimeout):
        transport.emit(event)


def test_a_file_gets_one_event_a_line_in_a_folder_that_is_made(start, tmp_path):
    start(file="events/lineage.jsonl")
    emit(RunStarted(**RUN))
    emit(ended())
    events = [json.loads(line) for line in (tmp_path / "events" / "lineage.jsonl").read_text().splitlines()]
    assert [as_client_reads(event).eventType for event in events] == [RunState.START, RunState.COMPLETE]


def test_a_file_that_cannot_be_written_is_logged_once(start, tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    start(file="taken/lineage.jsonl")
    emit(RunStarted(**RUN))
    emit(ended())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


FORKING = """
import os, sys
from pathlib import Path
from tests.tidemark.observe.test_lineage import RUN, ended
from tidemark.config import load_config
from tidemark.observe import lineage
from tidemark.runs.events import RunStarted, emit
lineage.start(load_config(Path(sys.argv[1])))
emit(RunStarted(**RUN))
child = os.fork()
emit(ended("unchanged" if child == 0 else "published"))
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_sends_its_own_events(backend, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(configured(tmp_path, url=backend.url).path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    assert sorted(event["eventType"] for event in backend.events) == ["COMPLETE", "COMPLETE", "START"]


def test_the_configuration_requests_it(backend, tmp_path, monkeypatch):
    monkeypatch.delenv("TIDEMARK_LOG", raising=False)
    stop = observe.start(configured(tmp_path, url=backend.url))
    emit(RunStarted(**RUN))
    stop()  # a start is not waited for, but the end of the process is
    emit(RunStarted(**RUN))
    assert [event["eventType"] for event in backend.events] == ["START"]


@pytest.mark.parametrize(
    ("lake", "namespace"),
    [
        ({}, "s3://bucket/prefix/lake"),
        ({"type": "glue", "warehouse": "s3://other/lake"}, "s3://other/lake"),
        ({"type": "rest", "uri": "https://catalogue.example.com"}, "https://catalogue.example.com"),
    ],
)
def test_tables_are_named_by_where_the_lake_is(tmp_path, lake, namespace):
    document = {"store": "s3://bucket/prefix", "control": "sqlite:///c.db", "lake": lake}
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump(document))
    assert lineage.lake_namespace(load_config(tmp_path / "tidemark.yaml")) == namespace


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "give either url or file"),
        ({"url": "https://h", "file": "x"}, "give either url or file"),
        ({"file": "x", "api-key": CANARY}, "api-key is for url only"),
        ({"url": f"https://user:{CANARY}@h"}, "must be https://host"),
        ({"url": f"https://h?key={CANARY}"}, "must be https://host"),
        ({"url": "lineage.example.com"}, "must be https://host"),
    ],
)
def test_what_cannot_be_is_refused_without_being_repeated(tmp_path, settings, words):
    with pytest.raises(ConfigError, match=words) as refused:
        configured(tmp_path, **settings)
    assert CANARY not in str(refused.value)
