"""A code location for tests of several hosts: its job says on which host it ran."""

import os

from dagster import Definitions, OpExecutionContext, in_process_executor, job, op

HOST = "TIDEMARK_TEST_HOST"
RAN_ON = "test/ran-on"


@op
def look_around(context: OpExecutionContext) -> None:
    context.instance.add_run_tags(context.run_id, {RAN_ON: os.environ[HOST]})


@job(executor_def=in_process_executor)
def where() -> None:
    look_around()


defs = Definitions(jobs=[where])
