"""Keys and labels of all units: ten bytes each, which is all that the driver of a run holds of a large listing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.catalog.rows import CARRIED, FRESH, Kind, Label

Keys: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int8]

KINDS = tuple(Kind)
LABELS = tuple(Label)
FIELDS = ["kind", "unit_key", "label"]


@dataclass(frozen=True)
class UnitLabels:
    """Which label each unit has: three arrays of one length. Kinds and labels are numbered as in their enums."""

    kinds: Codes
    keys: Keys
    labels: Codes

    @classmethod
    def of(cls, batches: Iterable[pa.Table | pa.RecordBatch]) -> "UnitLabels":
        """Of rows that have at least kind, unit_key and label."""
        kinds, keys, labels = [np.empty(0, np.int8)], [np.empty(0, np.int64)], [np.empty(0, np.int8)]
        for batch in batches:
            kinds.append(_codes(batch["kind"], KINDS))
            keys.append(batch["unit_key"].to_numpy())
            labels.append(_codes(batch["label"], LABELS))
        return cls(np.concatenate(kinds), np.concatenate(keys), np.concatenate(labels))

    def keys_of(self, labels: Iterable[Label]) -> Keys:
        return self.keys[self._are(labels)]

    @property
    def touched(self) -> Keys:
        """Keys of the units whose rows are other than before, or gone."""
        return self.keys[~self._are(CARRIED)]

    def counts(self) -> dict[str, int]:
        """Tables by label, and how many schemas and databases changed. Every label is there: no zero need be guessed."""
        tables = self.kinds == KINDS.index(Kind.TABLE)
        by_label = np.bincount(self.labels[tables], minlength=len(LABELS))
        counts = {str(label): int(count) for label, count in zip(LABELS, by_label, strict=True)}
        return counts | {"schemas and databases": int(np.count_nonzero(~tables & ~self._are(CARRIED)))}

    def relabelled(self, keys: Keys, label: Label | None) -> "UnitLabels":
        """The tables with these keys get another label; with None they are left out."""
        hit = np.isin(self.keys, keys) & (self.kinds == KINDS.index(Kind.TABLE))
        if label is None:
            return UnitLabels(self.kinds[~hit], self.keys[~hit], self.labels[~hit])
        return replace(self, labels=np.where(hit, np.int8(LABELS.index(label)), self.labels))

    def _are(self, labels: Iterable[Label]) -> npt.NDArray[np.bool_]:
        return np.isin(self.labels, [LABELS.index(label) for label in labels])


def _codes(column: pa.Array | pa.ChunkedArray, of: tuple[str, ...]) -> Codes:
    found = pc.index_in(column, pa.array([str(each) for each in of]))
    return np.asarray(found.to_numpy(), np.int8)


def changes_nothing(counts: Mapping[str, int]) -> bool:
    """Whether the published state is the state of units that were counted so."""
    return not any(counts[name] for name in (*FRESH, Label.REMOVED, "schemas and databases"))
