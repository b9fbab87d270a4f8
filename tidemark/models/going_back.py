"""Going back: the last value by hand, or table and state together to what a run left."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from tidemark.checks import CheckResult
from tidemark.control import Mark, RunRecord
from tidemark.errors import StateError, UsageError
from tidemark.faults import fault_point
from tidemark.lake_compare import changed_rows
from tidemark.models.state import ModelState, parsed, state_of
from tidemark.models.subject import ModelSubject
from tidemark.models.values import Value, from_text, to_text
from tidemark.runs import Mode, Reason, Run
from tidemark.runs.by_hand import Target, reset, rewind
from tidemark.runs.rollback import check_target, roll_back, target_of, version_left_by


def rewind_model(subject: ModelSubject, to: str | None, version: int | None, reason: str) -> ModelState:
    """Moves the last value back, to a value or to that of a version: the next run brings what is later again."""
    name, marks = subject.name, subject.control.marks
    incremental = subject.metadata.incremental if subject.metadata else None
    if incremental is None or incremental.strategy == "append":
        raise UsageError(
            f"{name}: only the last value of a merge or delete_insert can be moved back. What is appended again would be in "
            f"the table twice: use `tidemark model rollback {name} RUN`, or `tidemark model run {name} --full`."
        )

    def target(mark: Mark) -> Target:
        state = state_of(mark, name)
        if state is None or state.last_processed_value is None:
            raise UsageError(f"{name} has no last value: there is nothing to rewind. The next run brings everything anyway.")
        value = _of_version(subject, version) if to is None else _as(state.last_processed_value, to, name)
        if value > state.last_processed_value:  # type: ignore[operator]
            raise UsageError(f"{name}: a last value can only go back, or the rows in between would never be read.")
        return {"to_value": replace(state, last_processed_value=value, made_from=None).to_json()}

    moved = state_of(rewind(subject.control, marks, subject.address, reason, target), name)
    assert moved is not None, "rewound"
    return moved


def reset_model(subject: ModelSubject, reason: str) -> int:
    """Takes the state away: the next run rebuilds the model. Returns the version that counts this move."""
    return reset(subject.control, subject.control.marks, subject.address, reason)


def _of_version(subject: ModelSubject, version: int | None) -> Value:
    then = parsed(subject.control.marks.value_of(subject.address, version or 0), subject.name).last_processed_value
    if then is None:
        raise UsageError(f"{subject.name}: its state of version {version} has no last value.")
    return then


def _as(current: Value, text: str, name: str) -> Value:
    """The text as a value of the type that the last value has."""
    kept = to_text(current)
    assert kept is not None, "there is one"
    try:
        value = from_text([kept[0], text])
        assert value is not None, "made of text"
        if (
            isinstance(value, datetime)
            and isinstance(current, datetime)
            and (value.tzinfo is None) != (current.tzinfo is None)
        ):
            value = value.replace(tzinfo=current.tzinfo)  # a person leaves the zone out, or writes one where there is none
        return value
    except (ValueError, ArithmeticError):
        raise UsageError(f"{name}: --to is no value of the type that its filter column has ({kept[0]}).") from None


# Blocking checks of a model that the rows of a snapshot fail, by whoever can run them.
Judge = Callable[[int], Sequence[CheckResult]]


def roll_back_model(subject: ModelSubject, to: RunRecord, reason: str, judge: Judge) -> RunRecord:
    """Table and state back to what a run left. Returns the ledger's row of the rollback.

    The rows are checked like those of any run: checks may have come, or other tables may have changed, since.

    The state follows the table, as in every run of a model: the commit carries it, and recovery moves it if this run is
    killed in between. The other way round an appending model would add rows twice.
    """
    wanted, name = target_of(to), subject.name
    with Run(subject, str(uuid4())) as run:
        version = version_left_by(subject.control.marks, to)
        if version is None:
            raise StateError(f"{name}: run {to.run_id} left no state, and a table without one is rebuilt by the next run.")
        table, expected = subject.platform.reader.existing(subject.place.table), subject.states.version(name)
        head = table.current_snapshot()
        base = head.snapshot_id if head else None
        run.decide(Mode.ROLLBACK, Reason.REQUESTED, f"to run {to.run_id}", base_snapshot=base)
        with run.step("verify"):
            check_target(run, table, wanted)
            run.require(judge(wanted), "Go back to another run, or set `blocking: false` for the check.")
            rows = changed_rows(table, base, wanted) if base is not None else (0, 0)
        state = replace(parsed(subject.control.marks.value_of(subject.address, version), name), made_from=None)
        with run.step("publish"):
            record = {"expected": expected, "state": state.to_json()}
            snapshot = roll_back(run, table, wanted, record=record, with_schema=True)
        fault_point("rollback.before_state")
        with run.step("state"):
            moved = replace(state, snapshot=snapshot)
            subject.states.move(name, moved, expected=expected, run_id=run.run_id, reason=reason, back=True)
        counts = {"inserted": rows[0], "deleted": rows[1]}
        detail = {"rolled back to": to.run_id, "rows": {what: count for what, count in counts.items() if count}}
        return run.finish("published", snapshot=snapshot, detail={**detail, "writes": [f"lake.{subject.place.table}"]})
