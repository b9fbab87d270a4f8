"""What every schedule and sensor shares: the tags of runs that nobody watches, and when one may be added."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from threading import Lock, Thread
from typing import Any, TypeVar

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import MAX_RETRIES_TAG, RETRY_STRATEGY_TAG, SCHEDULE_NAME_TAG

from platform_assets.dead_runs import close_if_dead
from resources.tags import STARTED_BY, SUBJECT, subject_tags, subjects_of
from tidemark.control import ControlDatabase
from tidemark.errors import SourceUnreachable

OWNERS = ["team:data-platform"]
UPKEEP = "tidemark_upkeep"
# A run that nobody watches is tried again, from its beginning: the assets of a run belong together, and a retry that began
# at the failed step would have nothing to go on from.
AGAIN = {MAX_RETRIES_TAG: "2", RETRY_STRATEGY_TAG: "ALL_STEPS"}
# After each failure in a row a sensor waits twice as long before it asks again.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
FAILURES_SEEN = 10
WAITING = (DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED)
# Dagster gives an evaluation 60 seconds; a source that says nothing is given up before.
DEADLINE = 20.0
ESCAPED = {"_": "__", "-": "_dash_", ".": "_dot_", "/": "__"}

T = TypeVar("T")


def unattended(by: str, *addresses: str) -> dict[str, str]:
    """The tags of a run of these subjects that a schedule or a sensor starts."""
    return {STARTED_BY: by, **AGAIN, **subject_tags(addresses)}


def plain_name(text: str) -> str:
    """A name of letters, digits and _ only, as Dagster wants. `shop-eu`, `shop.eu` and `shop_eu` stay three names."""
    return "".join(ESCAPED.get(letter, letter) for letter in text)


# --- one run of a subject at a time ----------------------------------------------------------------------------------


def in_the_way(
    instance: DagsterInstance,
    control: ControlDatabase,
    addresses: Iterable[str],
    now: datetime | None = None,
    *,
    schedule: str | None = None,
) -> str | None:
    """Why no run of these subjects is added now: one is queued or under way, or holds the lease. None if there is none.

    No limit in Dagster counts by subject. With this rule a subject has one run at most that nobody requested, and what it
    does not see stays due. Upkeep that waits for its turn is not counted: all subjects share its pool, and one that hangs
    would hold up the runs of all. Once it works, its lease decides. `schedule` is the one that asks.
    """
    wanted = set(addresses)
    for run in instance.get_runs(RunsFilter(statuses=list(NOT_FINISHED_STATUSES))):
        taken = wanted.intersection(subjects_of(run.tags))
        waiting_upkeep = run.job_name == UPKEEP and run.status in WAITING
        passable = waiting_upkeep or is_resumed_by(schedule, run)
        if taken and not passable and not close_if_dead(instance, control, run, now):
            return f"{min(taken)}: run {run.run_id} is {run.status.value.lower()}"
    for address in sorted(wanted):
        holder = control.leases.holder(address)
        if holder is not None:
            return f"{address}: run {holder} is in progress"
    return None


def is_resumed_by(schedule: str | None, run: DagsterRun) -> bool:
    """Whether a schedule made this run and was killed before it could submit it. Evaluated again, the schedule must ask for
    the run again: then Dagster finds it and submits it. A schedule that lives submits within the same second."""
    made = schedule is not None and run.tags.get(SCHEDULE_NAME_TAG) == schedule
    return made and run.status == DagsterRunStatus.NOT_STARTED


def resting(instance: DagsterInstance, address: str, now: datetime | None = None) -> str | None:
    """Why a sensor does not ask for a run of a subject yet: its last runs failed, and the pause after them is not over."""
    last = instance.get_run_records(RunsFilter(tags={SUBJECT: address}), limit=FAILURES_SEEN)
    failures = _failures_in_a_row(last)
    if not failures:
        return None
    pause = min(FIRST_PAUSE * 2 ** (len(failures) - 1), LONGEST_PAUSE)
    ended = datetime.fromtimestamp(failures[0].end_time or failures[0].update_timestamp.timestamp(), UTC)
    if (now or datetime.now(UTC)) >= ended + pause:
        return None
    return f"{address}: {len(failures)} runs failed; the next is started at {ended + pause:%H:%M:%S} UTC"


def _failures_in_a_row(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Upkeep is no run that looks for news, and waits while others fail: it ends no row of failures."""
    failed = []
    for record in (each for each in records if each.dagster_run.job_name != UPKEEP):
        if record.dagster_run.status not in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
            break
        failed.append(record)
    return failed


# --- a deadline for whatever asks a source ---------------------------------------------------------------------------

_asking: dict[str, Thread] = {}
_lock = Lock()


def within_deadline(what: str, ask: Callable[[], T], seconds: float = DEADLINE) -> T:
    """What a source answers, or `SourceUnreachable` after some seconds. The question goes on in a thread of its own: while
    one is open, no second is asked."""
    answer: dict[str, Any] = {}

    def asking() -> None:
        try:
            answer["value"] = ask()
        except BaseException as error:
            answer["error"] = error

    with _lock:
        open_still = what in _asking and _asking[what].is_alive()
        if not open_still:
            _asking[what] = Thread(target=asking, name=f"asks {what}", daemon=True)
            _asking[what].start()
        thread = _asking[what]
    if open_still:
        raise SourceUnreachable(f"{what}: the source has still not answered the last question. Check that it is up.")
    thread.join(seconds)
    if thread.is_alive():
        raise SourceUnreachable(f"{what}: the source has not answered in {seconds:g} seconds. Check that it is up.")
    if "error" in answer:
        raise answer["error"]
    value: T = answer["value"]
    return value
