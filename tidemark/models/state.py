"""The state of models: how far each has got and what it was made from. It is the mark, and moves last."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from tidemark.control import ControlDatabase, Mark, actor
from tidemark.errors import ModelStateUnreadable
from tidemark.models.place import ModelPlace
from tidemark.models.values import Value, from_text, to_text

FORM = 1  # of the text that a state is kept as


@dataclass(frozen=True)
class DroppedColumn:
    """A column that is gone, and the snapshot that still has it."""

    name: str
    field: dict[str, Any]
    snapshot: int
    run_id: str


@dataclass(frozen=True)
class ModelState:
    """What the last run of a model left behind."""

    last_processed_value: Value | None = field(default=None, repr=False)
    sql_hash: str | None = None
    config_hash: str | None = None
    strategy: str | None = None
    snapshot: int | None = None
    columns: dict[str, str] = field(default_factory=dict)
    # The columns that every row was written with: those of the last time that all rows were.
    identity: tuple[str, ...] = ()
    dropped: tuple[DroppedColumn, ...] = ()
    # A digest of the differences between query and table that the policy leaves as they are.
    standing: str | None = None
    # A digest of what the rows were made from: query, options and the snapshots read. None if more than that decides.
    made_from: str | None = None
    # Counts the moves; 0 before the first.
    version: int = 0
    run_id: str | None = None

    def to_json(self) -> str:
        kept = {key: value for key, value in asdict(self).items() if key not in ("version", "run_id", "snapshot")}
        return json.dumps({"form": FORM, **kept, "last_processed_value": to_text(self.last_processed_value)}, sort_keys=True)


def state_of(mark: Mark | None, name: str) -> ModelState | None:
    """The state that a mark holds."""
    if mark is None:
        return None
    return replace(parsed(mark.value, name), version=mark.version, run_id=mark.run_id, snapshot=mark.snapshot)


def parsed(text: str, name: str) -> ModelState:
    try:
        kept = json.loads(text)
        form = kept.pop("form")
        if form != FORM:
            raise ValueError(form)
        known = {each.name for each in fields(ModelState)}
        dropped = tuple(DroppedColumn(**each) for each in kept.pop("dropped"))
        value = from_text(kept.pop("last_processed_value"))
        identity = tuple(kept.pop("identity", ()))
        return ModelState(value, dropped=dropped, identity=identity, **{key: kept[key] for key in kept.keys() & known})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ModelStateUnreadable(
            f"{name}: its state was written by another version of Tidemark, or is damaged. Nothing was changed. "
            "Use that version, or rebuild the model with `tidemark model run --full`."
        ) from None


class ModelStateManager:
    """Reads and moves the states of models."""

    def __init__(self, control: ControlDatabase) -> None:
        self._marks = control.marks

    def get(self, table: str) -> ModelState | None:
        return state_of(self._marks.get(ModelPlace(table).address), table)

    def version(self, table: str) -> int:
        """How often the state has moved; also of a state that cannot be read."""
        return self._marks.version(ModelPlace(table).address)

    def get_last_processed_value(self, table: str) -> Value | None:
        state = self.get(table)
        return state.last_processed_value if state else None

    def update_processed_value(self, table: str, value: Value | None, strategy: str) -> ModelState:
        """Moves the last value by hand; what else is known of the model stays as it is."""
        before = self.get(table) or ModelState(version=self.version(table))
        after = replace(before, last_processed_value=value, strategy=strategy, made_from=None)
        return self.move(table, after, expected=before.version, run_id=None, reason="moved by hand")

    def move(
        self, table: str, state: ModelState, *, expected: int, run_id: str | None, reason: str, back: bool = False
    ) -> ModelState:
        """Moves the state if it is still at the version expected; `back` if somebody wanted an older one."""
        address, text, marks = ModelPlace(table).address, state.to_json(), self._marks
        said: dict[str, Any] = {"snapshot": state.snapshot, "run_id": run_id, "actor": actor(), "reason": reason}
        if back:
            mark = marks.rewind(address, to_value=text, expected_version=expected, **said)
        else:
            mark = marks.move(address, expected or None, text, **said)
        return replace(state, version=mark.version, run_id=run_id)

    def reset(self, table: str, reason: str) -> None:
        """Takes the state away: the next run rebuilds the model."""
        self._marks.reset(ModelPlace(table).address, actor=actor(), reason=reason)

    def history(self, table: str) -> Sequence[dict[str, Any]]:
        """Every move of the state, newest first, without its values."""
        return [asdict(move) for move in self._marks.audit(ModelPlace(table).address)]
