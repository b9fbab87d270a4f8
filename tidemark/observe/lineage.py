"""OpenLineage: an event for the start and one for the end of every run, to a backend or a file.

The client's transports are used, not its client: that one adds what it finds around it (files, variables, the remote of a
Git repository, which may hold a token), and tries again for longer than a run should wait.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import attr
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.generated.base import RunFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.parent_run import Job as ParentJob
from openlineage.client.generated.parent_run import ParentRunFacet
from openlineage.client.generated.parent_run import Run as ParentRun
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
from openlineage.client.transport.transport import Transport

from tidemark.clock import Clock, SystemClock
from tidemark.config import Config, OpenLineageSettings
from tidemark.control.runs import ABANDONED, COUNTING
from tidemark.observe.sending import Sender
from tidemark.runs import events
from tidemark.runs.events import Event, RunEnded, RunStarted

PATIENCE = 3.0  # seconds: of one request, and of a run that waits for its last event to be sent
NO_RETRIES = {"total": 0, "connect": 0, "read": 0}
WRITTEN = ("landed", "inserted", "updated")  # what a ledger calls rows that a run wrote
RUN_IDS = UUID("5f6d6a1e-7d0b-5b43-9a55-6f0c7b1f2a10")  # any constant: ids that are no UUID become one of this family


def start(config: Config, clock: Clock | None = None) -> Callable[[], None]:
    """Begins to send; call what is returned to stop, once what is under way is sent or has had its time."""
    settings = config.openlineage
    assert settings is not None, "set in the configuration"
    with suppress(PackageNotFoundError):
        set_producer(f"urn:tidemark:{version('tidemark')}")
    transport = _transport(settings)
    sender: Sender[RunEvent] = Sender(settings.url or str(settings.file), transport.emit)
    stop_listening = events.listen(Lineage(sender, settings.namespace, lake_namespace(config), clock or SystemClock()))

    def stop() -> None:
        stop_listening()
        sender.drain(PATIENCE)
        transport.close()

    return stop


class Lineage:
    """A listener of runs that sends what it hears as run events."""

    def __init__(self, sender: Sender[RunEvent], namespace: str, lake: str, clock: Clock) -> None:
        self._sender = sender
        self._namespace = namespace
        self._lake = lake
        self._clock = clock
        self._parents: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            # A run that is the Dagster run, with the same id, has no parent.
            if event.dagster_run and run_uuid(event.dagster_run) != run_uuid(event.run_id):
                self._parents[event.run_id] = event.dagster_run
            self._sender.put(self._event(event, RunState.START, self._parent(event)))
        elif isinstance(event, RunEnded):
            facets = {**self._parent(event), **_outcome(event)}
            self._parents.pop(event.run_id, None)
            self._sender.put(self._event(event, state_of(event), facets, **self._tables(event)))
            # A process may end with its run, and nobody else would send it.
            self._sender.drain(PATIENCE)

    def _event(self, event: Event, state: RunState, facets: dict[str, RunFacet], **tables: Any) -> RunEvent:
        return RunEvent(
            eventType=state,
            eventTime=self._clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            run=Run(runId=run_uuid(event.run_id), facets=facets),
            job=Job(namespace=self._namespace, name=event.subject),
            **tables,
        )

    def _parent(self, event: Event) -> dict[str, RunFacet]:
        dagster_run = self._parents.get(event.run_id)
        if dagster_run is None:
            return {}
        job = ParentJob(namespace=self._namespace, name=f"dagster/{event.subject}")
        return {"parent": ParentRunFacet(run=ParentRun(runId=run_uuid(dagster_run)), job=job)}

    def _tables(self, event: RunEnded) -> dict[str, Any]:
        counts = [event.rows[what] for what in WRITTEN if what in event.rows]
        # Rows are counted for the run: of several tables nobody knows which got how many.
        known = len(event.writes) == 1 and counts
        statistics = {"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=sum(counts))} if known else {}
        return {
            "inputs": [InputDataset(self._lake, _table(name)) for name in event.reads],
            "outputs": [OutputDataset(self._lake, _table(name), outputFacets=dict(statistics)) for name in event.writes],
        }


@attr.define
class TidemarkRunFacet(RunFacet):
    """What OpenLineage has no word for."""

    status: str
    mode: str | None
    reason: str | None
    seconds: float
    rows: dict[str, int]


def state_of(event: RunEnded) -> RunState:
    if event.status in COUNTING:
        return RunState.COMPLETE
    stopped = event.status == ABANDONED or (event.error or "").startswith("Interrupted:")
    return RunState.ABORT if stopped else RunState.FAIL


def run_uuid(run_id: str) -> str:
    """The run's id as OpenLineage wants it: a UUID, the same for the same run in every process."""
    try:
        return str(UUID(run_id))
    except ValueError:
        return str(uuid5(RUN_IDS, run_id))


def lake_namespace(config: Config) -> str:
    """Tables are named by where the lake is, as other producers name them."""
    place = str(config.lake.get("warehouse") or config.lake.get("uri") or f"{config.store.url.rstrip('/')}/lake")
    return Path(place).as_uri() if place.startswith("/") else place


def _table(name: str) -> str:
    """Without Spark's name for the catalogue: the namespace says which lake it is."""
    return name.removeprefix("lake.")


def _outcome(event: RunEnded) -> dict[str, RunFacet]:
    facet = TidemarkRunFacet(event.status, event.mode, event.reason, event.seconds, dict(event.rows))
    failed: Mapping[str, RunFacet] = (
        {"errorMessage": ErrorMessageRunFacet(message=event.error, programmingLanguage="Python")} if event.error else {}
    )
    return {"tidemark_run": facet, **failed}


def _transport(settings: OpenLineageSettings) -> Transport:
    if settings.file:
        with suppress(OSError):  # what cannot be written is reported with the first event
            settings.file.parent.mkdir(parents=True, exist_ok=True)
        return FileTransport(FileConfig(log_file_path=str(settings.file), append=True))
    key = settings.api_key.get_secret_value() if settings.api_key else None
    return HttpTransport(
        HttpConfig(
            url=f"{settings.url}".rstrip("/") + "/",  # else the last part of its path would be replaced
            endpoint=settings.endpoint.lstrip("/"),
            timeout=PATIENCE,
            auth=ApiKeyTokenProvider({"api_key": key}) if key else TokenProvider({}),
            retry=NO_RETRIES,
        )
    )
