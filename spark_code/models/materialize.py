"""A model's query made into what its metadata say: a view, a table, or a table that is brought up to date."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from spark_code.models.adapter import ModelAdapter
from spark_code.models.incremental import IncrementalExecutor
from spark_code.models.rebuild import Rebuild
from spark_code.models.run import ModelRun
from spark_code.models.work import Outcome, Work
from spark_code.platform import Platform
from tidemark.errors import ModelStateUnreadable, UsageError
from tidemark.models.results import ModelResult
from tidemark.models.spec import Materialization, ModelMetadata
from tidemark.models.state import ModelState, ModelStateManager
from tidemark.models.windows import TimeWindow
from tidemark.runs import Mode, Reason


class MaterializationHandler:
    """One model at a time: lease, recovery, the right way of keeping it, the ledger."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.adapter = ModelAdapter(platform)
        self.state_manager = ModelStateManager(platform.control)

    def materialize(
        self,
        table_name: str,
        sql_query: str,
        materialization: Materialization,
        metadata: Mapping[str, Any] | ModelMetadata | None = None,
        *,
        full: bool = False,
        window: TimeWindow | None = None,
        run_id: str | None = None,
        **options: Any,
    ) -> ModelResult:
        """Runs the model. With `full` it is rebuilt from the whole query, whatever is there; with a window, only that."""
        described = _described(table_name, materialization, metadata)
        if window is not None and described.partitions is None:
            raise UsageError(
                f"{table_name}: it has no partitions. Write `partitions: {{by: day, start: …}}` into its header."
            )
        with ModelRun(self.adapter, table_name, run_id or str(uuid4()), **options) as run:
            with run.step("model"):
                outcome = self._materialize(run, sql_query, described, full=full, window=window)
            result = outcome.result(run)
            run.finish(outcome.status, snapshot=outcome.snapshot, detail=result.summary())
            return result

    def _materialize(
        self, run: ModelRun, sql: str, metadata: ModelMetadata, *, full: bool, window: TimeWindow | None
    ) -> Outcome:
        if metadata.materialization == "view":
            run.decide(Mode.VIEW, Reason.VIEW)
            work = Work.begun(run, metadata, sql, None)
            checks = work.check(work.rows)
            self.adapter.create_view(run.name, sql, run.confirm)
            return Outcome("published", "view", Reason.VIEW, checks=checks)
        if metadata.materialization == "table":
            return self._rebuilt(run, sql, metadata, Reason.ALWAYS_REBUILT)
        if full:
            return self._rebuilt(run, sql, metadata, Reason.REQUESTED)
        return self._execute_incremental_materialization(run, sql, metadata, window)

    def _execute_incremental_materialization(
        self, run: ModelRun, sql: str, metadata: ModelMetadata, window: TimeWindow | None
    ) -> Outcome:
        assert metadata.incremental is not None, "the metadata are refused without"
        executor = IncrementalExecutor(self.state_manager, run, metadata, window)
        strategies = {
            "append": executor.execute_append_strategy,
            "merge": executor.execute_merge_strategy,
            "delete_insert": executor.execute_delete_insert_strategy,
        }
        return strategies[metadata.incremental.strategy](run.name, sql)

    def _rebuilt(self, run: ModelRun, sql: str, metadata: ModelMetadata, reason: Reason) -> Outcome:
        with run.step("read query"):
            work = Work.begun(run, metadata, sql, self._readable_state(run.name))
        if not self.adapter.table_exists(run.name):
            return Rebuild(work).first(reason)
        return Rebuild(work).whole(reason, action="full")

    def _readable_state(self, name: str) -> ModelState | None:
        """A state that cannot be read does not stand in the way of a rebuild."""
        try:
            return self.state_manager.get(name)
        except ModelStateUnreadable:
            return None


def _described(name: str, kind: Materialization, metadata: Mapping[str, Any] | ModelMetadata | None) -> ModelMetadata:
    if isinstance(metadata, ModelMetadata):
        return metadata if metadata.materialization == kind else metadata.model_copy(update={"materialization": kind})
    return ModelMetadata.parse({**(metadata or {}), "materialization": kind}, file=name)
