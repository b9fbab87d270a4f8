"""What a run of a model did, and what a plan says that it would do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemark.checks import CheckResult
from tidemark.models.policy import SchemaStep

Action = Literal["incremental", "full", "rebuild", "view", "unchanged"]
Status = Literal["published", "unchanged", "failed", "skipped"]


@dataclass(frozen=True)
class ModelResult:
    """One run of one model, in what somebody can act on; no value of state is in it."""

    name: str
    status: Status
    action: Action
    reason: str
    run_id: str
    rows: Mapping[str, int] = field(default_factory=dict)
    snapshot: int | None = None
    steps: tuple[SchemaStep, ...] = ()
    warnings: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    def summary(self) -> dict[str, Any]:
        """What the ledger keeps of it."""
        return {
            "rows": dict(self.rows),
            "schema": [step.words for step in self.steps],
            "warnings": list(self.warnings),
            "checks": {check.name: check.passed for check in self.checks},
        }


@dataclass(frozen=True)
class ModelPlan:
    """What a run of a model would do now."""

    name: str
    action: Action
    reason: str
    schema_diff: tuple[str, ...] = ()
    steps: tuple[SchemaStep, ...] = ()
    warnings: tuple[str, ...] = ()
    # None where only the run itself can know.
    rows_expected: int | None = None
    # Why the run would stop, if it would.
    refused: str | None = None

    @property
    def destructive(self) -> bool:
        return any(step.destructive for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        steps = [{"kind": step.kind, "words": step.words, "destructive": step.destructive} for step in self.steps]
        plain = {key: getattr(self, key) for key in ("name", "action", "reason", "rows_expected", "refused")}
        return {**plain, "schema_diff": list(self.schema_diff), "steps": steps, "warnings": list(self.warnings)}
