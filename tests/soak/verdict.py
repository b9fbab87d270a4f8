"""What must be true when it is calm again: all is current and equal to a fresh full run, and nothing is left over."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, WILL_RETRY_TAG
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from platform_assets.launch import causes
from resources.tags import REPORTED, subjects_of
from spark_code.catalog.subject import CatalogSubject
from spark_code.platform import Platform
from tests.catalog.harness import Catalog, in_order
from tests.soak.place import SUBJECTS, Place
from tests.soak.processes import start_command
from tidemark import errors
from tidemark.checks import failed
from tidemark.config import load_config
from tidemark.control import ControlDatabase, RunRecord
from tidemark.control.runs import COUNTING, RUNNING, UPKEEP
from tidemark.runs.system import open_subject, system_of

LATEST = {
    "stream/default/shop/shop.carts": "record.* FROM lake.bronze.default.shop.shop_carts__latest",
    "stream/default/deliveries/deliveries.lines": "record.* FROM lake.bronze.default.deliveries.deliveries_lines__latest",
    "model/silver.carts": "* FROM lake.silver.carts",
    "model/silver.delivery_lines": "* FROM lake.silver.delivery_lines",
}
HISTORY = 10_000
LONGEST = 160  # of what is said while it is waited for; the verdict has all of it
MOST_A_RUN = {"objects in S3": 40, "bytes in S3": 300_000, "bytes of Dagster": 500_000}
DAGSTER_RUN = re.compile(r"Dagster run ([0-9a-f-]{36})")


@dataclass
class Verdict:
    """What was found, in numbers, and what is wrong."""

    wrong: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.wrong.append(words)


# --- it becomes calm -------------------------------------------------------------------------------------------------


def settle(place: Place, since: datetime, seconds: float, say: Callable[[str], None]) -> list[str]:
    """Waits until every subject has seen what changed last and nobody is at work. Returns what is not so in the end."""
    control = ControlDatabase(load_config(place.config).control)
    until, found, looks = time.monotonic() + seconds, ["nobody looked"], 0
    while found and time.monotonic() < until:
        found = list(unsettled(place, control, since))
        if found and looks % 15 == 0:
            say("waiting: " + "; ".join(each[:LONGEST] for each in found))
        looks += 1
        time.sleep(2)
    return found


def unsettled(place: Place, control: ControlDatabase, since: datetime) -> Iterator[str]:
    landed = since
    for address in SUBJECTS:
        newest = _newest(control, address, counting=True)
        # A model is current if it began after the streams that it reads were done.
        after = landed if address.startswith("model/") else since
        if newest is None or newest.started_at <= after:
            yield f"{address} has no run that counts since {after:%H:%M:%S}: {_last_words(control, address)}"
        elif address.startswith("stream/") and newest.status == "published" and newest.finished_at:
            landed = max(landed, newest.finished_at)
    for lease in control.leases.held():
        yield f"{lease.run_id} holds the lease of {lease.subject}"
    with DagsterInstance.from_config(str(place.home)) as instance:
        for run in instance.get_runs(RunsFilter(statuses=list(NOT_FINISHED_STATUSES))):
            yield f"Dagster run {run.run_id} of {', '.join(subjects_of(run.tags)) or run.job_name} is {run.status.value}"
        for run_id, run in failed_for_good(instance).items():
            if f"{REPORTED}-mail" not in run.tags and not _was_busy(instance, run):
                yield f"the failure of Dagster run {run_id} is not reported"


def _newest(control: ControlDatabase, address: str, *, counting: bool) -> RunRecord | None:
    runs = [run for run in control.runs.history(address, limit=50) if run.mode != UPKEEP]
    return next((run for run in runs if run.status in COUNTING or not counting), None)


def _last_words(control: ControlDatabase, address: str) -> str:
    last = _newest(control, address, counting=False)
    return f"{last.run_id} is {last.status}: {last.error}" if last else "no run at all"


# --- and is then judged ----------------------------------------------------------------------------------------------


def judge(place: Place, fresh: Place, calm_since: datetime) -> Verdict:
    """Compares with the fresh full run, and looks for what was left over. Nothing of the soak runs any more."""
    verdict = Verdict()
    config = load_config(place.config)
    platform = Platform(config, start=a_session)
    _ledger(platform.control, verdict)
    with DagsterInstance.from_config(str(place.home)) as instance:
        _runs_in_dagster(instance, verdict)
        _mails(instance, place, verdict)
        _ticks(instance, calm_since, verdict)
    again = Platform(load_config(fresh.config), start=a_session)
    for name in ("shop", "notes"):
        _catalogue(Catalog(place.folder, platform, None, name=name), Catalog(fresh.folder, again, None, name=name), verdict)
    for address, query in LATEST.items():
        here, there = (_rows(each, query, verdict) for each in (platform, again))
        verdict.figures[address] = sum(here.values())
        verdict.expect(here == there, f"{address}: {_difference(here, there)}")
    verdict.figures["upkeep"] = upkeep_of(platform.control)
    _audits(platform, verdict)
    _leftovers(platform, verdict)
    _sizes(place, platform, verdict)
    for each in (platform, again):
        each.spark.stop()
    return verdict


def read_afresh(fresh: Place) -> list[str]:
    """A full run of everything under a new configuration. Returns what failed."""
    commands = [
        ("catalog", "run", "shop"), ("catalog", "run", "notes"), ("stream", "run", "default/shop"),
        ("stream", "run", "default/deliveries"), ("model", "run"),
    ]  # fmt: skip
    wrong = []
    for words in commands:
        if start_command(fresh, *words).wait():
            wrong.append(f"tidemark {' '.join(words)} failed; see {fresh.folder}/commands.log")
    return wrong


def a_session(settings: dict[str, str]) -> SparkSession:
    """One of its own for each lake."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.create()


def _ledger(control: ControlDatabase, verdict: Verdict) -> None:
    statuses: Counter[str] = Counter()
    for address in SUBJECTS:
        for run in control.runs.history(address, limit=HISTORY):
            statuses[run.status] += 1
            verdict.expect(run.status != RUNNING, f"{address}: the row of {run.run_id} is open")
            verdict.expect(
                run.status in COUNTING or bool(run.error), f"{address}: {run.run_id} is {run.status} without an error"
            )
            name = (run.error or "TidemarkError").partition(":")[0]
            ours = hasattr(errors, name) and name != errors.UnexpectedFailure.__name__
            verdict.expect(ours, f"{address}: {run.run_id} ended with a foreign error: {run.error}")
    verdict.figures["ledger"] = dict(statuses)


def _runs_in_dagster(instance: DagsterInstance, verdict: Verdict) -> None:
    runs = instance.get_runs()
    verdict.figures["Dagster"] = dict(Counter(run.status.value for run in runs))
    for run in runs:
        verdict.expect(run.is_finished, f"Dagster run {run.run_id} is {run.status.value}")


def _mails(instance: DagsterInstance, place: Place, verdict: Verdict) -> None:
    """One for every run that failed for good, unless another run was in its way."""
    mailed = Counter(number for mail in place.mail.mails for number in DAGSTER_RUN.findall(mail.get_content()))
    final = failed_for_good(instance)
    verdict.figures["mails"] = sum(mailed.values())
    for run_id, count in mailed.items():
        verdict.expect(count == 1, f"{count} mails about Dagster run {run_id}")
        verdict.expect(run_id in final, f"a mail about Dagster run {run_id}, which did not fail for good")
    for run_id, run in final.items():
        verdict.expect(run_id in mailed or _was_busy(instance, run), f"no mail about Dagster run {run_id}, which failed")


def _ticks(instance: DagsterInstance, calm_since: datetime, verdict: Verdict) -> None:
    """Once nothing is taken away any more, no schedule and no sensor fails. A failed one is in no ledger and no mail."""
    failed = [
        f"{state.instigator_name} failed at {tick.timestamp:.0f}: {tick.error.message[:LONGEST] if tick.error else ''}"
        for state in instance.all_instigator_state()
        for tick in instance.get_ticks(
            state.instigator_origin_id, state.selector_id, after=calm_since.timestamp(), statuses=[TickStatus.FAILURE]
        )
    ]
    verdict.wrong += failed


def upkeep_of(control: ControlDatabase) -> dict[str, Counter[str]]:
    """How upkeep of every subject ended."""
    return {
        address: Counter(run.status for run in control.runs.history(address, limit=HISTORY) if run.mode == UPKEEP)
        for address in SUBJECTS
    }


def failed_for_good(instance: DagsterInstance) -> dict[str, DagsterRun]:
    """Runs of ours that failed and were not tried again. Dagster may say that it will, and be killed before it does."""
    failed = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.FAILURE]))
    tried_again = {run.tags.get(PARENT_RUN_ID_TAG) for run in instance.get_runs()}
    return {
        run.run_id: run
        for run in failed
        if subjects_of(run.tags) and (run.tags.get(WILL_RETRY_TAG) != "true" or run.run_id not in tried_again)
    }


def _was_busy(instance: DagsterInstance, run: DagsterRun) -> bool:
    failures = [each.dagster_event for each in instance.all_logs(run.run_id) if each.is_dagster_event]
    return any(
        "RunInProgress" in cause.message
        for event in failures
        if event and event.is_step_failure
        for cause in causes(event.step_failure_data.error)
    )


def _catalogue(here: Catalog, there: Catalog, verdict: Verdict) -> None:
    state, wanted = here.unlabelled(), there.unlabelled()
    verdict.figures[f"catalog/{here.name}"] = len(state)
    entities = [Counter(json.dumps(each, sort_keys=True) for each in both) for both in (state, wanted)]
    verdict.expect(entities[0] == entities[1], f"catalog/{here.name}: {_difference(*entities)}")
    verdict.expect(here.mirror() == in_order(here.state()), f"catalog/{here.name}: the mirror differs from the state")


def _audits(platform: Platform, verdict: Verdict) -> None:
    """What the product says of its own state: among other things that nothing landed twice."""
    for address in SUBJECTS:
        if not address.startswith("model/"):
            failures = failed(system_of(address).audit(open_subject(platform, address)))
            verdict.expect(not failures, f"{address}: {'; '.join(f'{each.name}: {each.summary}' for each in failures)}")


def _rows(platform: Platform, query: str, verdict: Verdict) -> Counter[str]:
    try:
        found = platform.spark.sql(f"SELECT {query}").toArrow().to_pylist()
    except AnalysisException as error:
        verdict.wrong.append(f"{query} cannot be read: {error.getCondition()}")
        return Counter()
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in found)


def _difference(here: Counter[str], there: Counter[str]) -> str:
    more, less = here - there, there - here
    examples = [*list(more)[:2], *list(less)[:2]]
    return f"{sum(more.values())} too many and {sum(less.values())} missing, such as {examples}"


def _leftovers(platform: Platform, verdict: Verdict) -> None:
    """Branches and shadow tables are stages: none is in use any more."""
    for table in tables(platform):
        shadows = platform.reader.shadows(table)
        verdict.expect(not shadows, f"{table} still has {shadows}")
        refs = platform.spark.sql(f"SELECT name FROM lake.{table}.refs").toArrow().to_pylist()
        names = [each["name"] for each in refs if each["name"] != "main"]
        verdict.expect(not names, f"{table} still has {names}")


def tables(platform: Platform) -> list[str]:
    """Those that are there: one that is missing was named before."""
    catalogues = [CatalogSubject(platform, each).layout.table for each in platform.config.connections.values()]
    streams = ["bronze.default.shop.shop_carts", "bronze.default.deliveries.deliveries_lines"]
    wanted = [*catalogues, *streams, "silver.carts", "silver.delivery_lines"]
    return [each for each in wanted if platform.reader.table(each) is not None]


def _sizes(place: Place, platform: Platform, verdict: Verdict) -> None:
    """What a run leaves behind, on average; upkeep and retention bound how many runs are kept."""
    objects, runs = list(platform.store.list("")), sum(verdict.figures["Dagster"].values())
    verdict.figures["objects in S3"] = len(objects)
    verdict.figures["bytes in S3"] = sum(each.size for each in objects)
    verdict.figures["bytes of Dagster"] = sum(file.stat().st_size for file in _files(place.home))
    for name, most in MOST_A_RUN.items():
        found = verdict.figures[name]
        verdict.expect(found <= most * runs, f"{name}: {found} after {runs} runs, more than {most} for each")


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]
