"""Prometheus metrics. Runs are short-lived processes, so nothing is counted here: every scrape asks the control database."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark.clock import Clock, SystemClock
from tidemark.control.runs import COUNTING, RUNNING
from tidemark.errors import ControlError, UsageError
from tidemark.observe.readings import Readings, Watched, take_readings

# Waiting runs by subject. Whoever knows the scheduler brings it; whatever it raises means that the scheduler is away.
Waiting = Callable[[], Mapping[str, int]]

log = logging.getLogger(__name__)


class ControlCollector(Collector):
    """Computes all metrics at scrape time. A database that is away is a metric, not an error."""

    def __init__(
        self, control: str, tenants: Sequence[str] = (), clock: Clock | None = None, waiting: Waiting | None = None
    ) -> None:
        self._control = Watched(control)
        self._tenants = tenants
        self._clock = clock or SystemClock()
        self._waiting = waiting
        self._away: set[str] = set()

    def close(self) -> None:
        """Lets go of the connections; the next scrape opens new ones."""
        self._control.close()

    def describe(self) -> Iterable[Metric]:
        return []  # else registering would already ask the database

    def collect(self) -> Iterator[Metric]:
        try:
            readings = take_readings(self._control, self._tenants, self._clock)
        except ControlError as error:
            self._report("control", str(error))
            yield gauge("tidemark_up", "Whether the control database could be read.", 0)
        else:
            self._away.discard("control")
            yield gauge("tidemark_up", "Whether the control database could be read.", 1)
            yield from metrics_of(readings, self._clock.now().timestamp())
        if self._waiting:
            yield from self._waiting_runs(self._waiting)

    def _waiting_runs(self, waiting: Waiting) -> Iterator[Metric]:
        up = "Whether Dagster's instance could be read."
        try:
            found = waiting()
        except Exception as error:  # it is foreign, and so are its errors
            self._report("dagster", f"Dagster's instance cannot be read: {type(error).__name__}")
            yield gauge("tidemark_dagster_up", up, 0)
            return
        self._away.discard("dagster")
        yield gauge("tidemark_dagster_up", up, 1)
        family = GaugeMetricFamily("tidemark_waiting_runs", "Runs in Dagster's queue.", labels=["subject"])
        for subject, count in sorted(found.items()):
            family.add_metric([subject], count)
        yield family

    def _report(self, what: str, words: str) -> None:
        """Once for every time that it goes away."""
        if what not in self._away:
            log.warning("%s", words)
        self._away.add(what)


def gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def metrics_of(readings: Readings, now: float) -> Iterator[Metric]:
    """The readings as metrics, in an order that does not change."""
    yield from _history(readings)
    yield from _last_runs(readings)
    yield from _moments(readings, now)
    leases = GaugeMetricFamily("tidemark_lease_held", "Whether a run holds the lease of the subject.", labels=["subject"])
    for subject in sorted({each.subject for each in readings.counted} | readings.held):
        leases.add_metric([subject], int(subject in readings.held))
    yield leases


def _history(readings: Readings) -> Iterator[Metric]:
    ended = CounterMetricFamily("tidemark_runs", "Runs that have ended, by status.", labels=["subject", "status"])
    seconds = CounterMetricFamily("tidemark_run_seconds", "Seconds that all ended runs took.", labels=["subject"])
    running = GaugeMetricFamily("tidemark_runs_running", "Runs that the ledger has as running.", labels=["subject"])
    took: dict[str, float] = {}
    under_way: dict[str, int] = {}
    for each in sorted(readings.counted, key=lambda each: (each.subject, each.status)):
        took.setdefault(each.subject, 0.0)
        under_way.setdefault(each.subject, 0)
        if each.status == RUNNING:
            under_way[each.subject] += each.runs
        else:
            ended.add_metric([each.subject, each.status], each.runs)
            took[each.subject] += float(each.seconds)
    for subject in took:
        seconds.add_metric([subject], took[subject])
        running.add_metric([subject], under_way[subject])
    yield from (ended, seconds, running)


def _last_runs(readings: Readings) -> Iterator[Metric]:
    status = GaugeMetricFamily("tidemark_last_run_status", "1 for the status of the last run.", labels=["subject", "status"])
    seconds = GaugeMetricFamily("tidemark_last_run_seconds", "Seconds that the last run took.", labels=["subject"])
    steps = GaugeMetricFamily("tidemark_step_seconds", "Seconds of each step of the last run.", labels=["subject", "step"])
    rows = GaugeMetricFamily(
        "tidemark_last_run_rows", "Rows of the last run, by what became of them.", labels=["subject", "rows"]
    )
    for run in sorted(readings.last_runs, key=lambda run: run.subject):
        status.add_metric([run.subject, run.status], 1)
        seconds.add_metric([run.subject], run.seconds)
        for step, took in run.steps.items():
            steps.add_metric([run.subject, step], took)
        for what, count in run.rows.items():
            rows.add_metric([run.subject, what], count)
    yield from (status, seconds, steps, rows)


def _moments(readings: Readings, now: float) -> Iterator[Metric]:
    """Ages for people, and moments for rules: a moment stays right in a file that nobody writes any more."""
    counted: dict[str, float] = {}
    for each in readings.counted:
        if each.status in COUNTING and each.last is not None:
            counted[each.subject] = max(counted.get(each.subject, 0.0), each.last.timestamp())
    moved = {subject: moment.timestamp() for subject, moment in readings.marks.items()}
    for name, meaning, moments in (
        ("tidemark_last_counting_run", "the last run that counts ended", counted),
        ("tidemark_mark", "the mark last moved", moved),
    ):
        moment = GaugeMetricFamily(f"{name}_timestamp_seconds", f"When {meaning}, in Unix time.", labels=["subject"])
        age = GaugeMetricFamily(f"{name}_age_seconds", f"Seconds since {meaning}.", labels=["subject"])
        for subject, at in sorted(moments.items()):
            moment.add_metric([subject], at)
            age.add_metric([subject], now - at)
        yield from (moment, age)


def exposition(collector: Collector) -> str:
    """The metrics as text, for a file or a pipe."""
    return generate_latest(_registry(collector)).decode()


def serve(collector: Collector, port: int, host: str) -> tuple[WSGIServer, Thread]:
    """Answers scrapes from a thread of its own, until the server is shut down."""
    try:
        return start_http_server(port, host, _registry(collector))
    except OSError as error:
        raise UsageError(f"metrics: nobody can listen on {host} port {port}: {error.strerror}. Choose another.") from None


def _registry(collector: Collector) -> CollectorRegistry:
    registry: Any = CollectorRegistry()
    registry.register(collector)
    return registry  # type: ignore[no-any-return]
