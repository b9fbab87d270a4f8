"""`tidemark metrics`: what Prometheus reads, with the runs that wait in Dagster's queue."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Annotated

import typer

from tidemark.cli.listening import require_free
from tidemark.cli.options import ConfigFile
from tidemark.cli.output import say
from tidemark.config import Config, load_config

MOST_WAITING = 1_000  # a queue that is longer is not read to its end: the number says enough


def metrics(
    serve: Annotated[int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Answer scrapes on this port.")] = None,
    host: Annotated[str, typer.Option(help="The address that --serve listens on.")] = "127.0.0.1",
    config: ConfigFile = None,
) -> None:
    """Print metrics in Prometheus' text format, or serve them."""
    loaded = load_config(config)
    from tidemark.observe import metrics as prometheus

    with closing(prometheus.ControlCollector(loaded.control, loaded.tenants, waiting=waiting_runs(loaded))) as collector:
        if serve is None:
            sys.stdout.write(prometheus.exposition(collector))
            return
        require_free(host, serve, "tidemark metrics --serve")
        server, thread = prometheus.serve(collector, serve, host)
        say(f"http://{host}:{serve}/metrics — stop with Ctrl-C")
        try:
            thread.join()
        except KeyboardInterrupt:
            server.shutdown()


def waiting_runs(config: Config) -> Callable[[], Mapping[str, int]] | None:
    """How many runs of each subject are in Dagster's queue; None where no instance has been made yet.

    A run of several counts for each of them, and one of none under the name of its job.
    """
    from platform_assets.instance import dagster_home, open_instance

    if not (dagster_home(config) / "dagster.yaml").exists():
        return None
    from dagster import DagsterRunStatus, RunsFilter

    from resources.tags import subjects_of

    def counted() -> Mapping[str, int]:
        with open_instance(config) as instance:
            queued = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED]), limit=MOST_WAITING)
        return Counter(each for run in queued for each in subjects_of(run.tags) or [run.job_name])

    return counted
