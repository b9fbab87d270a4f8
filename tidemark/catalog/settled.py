"""What became of every unit once columns were read. A source goes on between listing and reading: what was read counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.catalog.names import unit_key
from tidemark.catalog.rows import Label
from tidemark.catalog.units import Keys, UnitLabels


@dataclass(frozen=True)
class Settled:
    """Every unit with its final label."""

    units: UnitLabels
    # Qualified names of the tables that were listed and gone when their columns were to be read.
    vanished: tuple[str, ...] = ()


def settle(units: UnitLabels, vanished: Sequence[str], known: Collection[str], *, source_replaced: bool = False) -> Settled:
    """The labels of the listing, corrected for tables that were gone when their columns were to be read.

    `known` are those of them that are in the previous state: such a table is not proven gone and is carried, unless the
    state is that of another source. One that was not in the state leaves no trace.
    """
    left_behind = [name for name in vanished if name in known]
    given = Label.REMOVED if source_replaced else Label.UNKNOWN
    corrected = units.relabelled(_keys(left_behind), given) if left_behind else units
    without_trace = [name for name in vanished if name not in known]
    corrected = corrected.relabelled(_keys(without_trace), None) if without_trace else corrected
    return Settled(corrected, tuple(vanished))


def _keys(names: Sequence[str]) -> Keys:
    return np.array([unit_key(name) for name in names], np.int64)
