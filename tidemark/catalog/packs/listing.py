"""A listing of a source. Its tables are kept in Arrow's form: a source may have a million of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, overload

from tidemark.catalog.packs.facts import DatabaseFacts, SchemaFacts, TableFacts
from tidemark.errors import DuplicateName

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 10_000


class PackedTables(Sequence[TableFacts]):
    """Tables of a listing, in the order they came: some hundred bytes each, where Python's objects take a thousand.

    Give it an iterator, so that there are never many objects at once.
    """

    def __init__(self, tables: Iterable[TableFacts] = ()) -> None:
        from tidemark.catalog.packing import packed

        coming = iter(tables)
        self._batches = [packed(some) for some in iter(lambda: list(islice(coming, AT_ONCE)), [])]

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def __iter__(self) -> Iterator[TableFacts]:
        from tidemark.catalog.packing import unpacked

        for batch in self._batches:
            yield from unpacked(batch)

    @overload
    def __getitem__(self, at: int) -> TableFacts: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TableFacts]: ...

    def __getitem__(self, at: int | slice) -> TableFacts | Sequence[TableFacts]:
        if isinstance(at, slice):
            return tuple(self)[at]
        from tidemark.catalog.packing import unpacked

        place = at if at >= 0 else at + len(self)
        for batch in self._batches:
            if 0 <= place < batch.num_rows:
                return next(unpacked(batch.slice(place, 1)))
            place -= batch.num_rows
        raise IndexError(at)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PackedTables)
            and len(self) == len(other)
            and all(mine == theirs for mine, theirs in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> "pa.ChunkedArray":
        """One field of all tables, as text."""
        from tidemark.catalog.packing import column_of

        return column_of(self._batches, name)

    def twice(self) -> tuple[int, tuple[str, ...]] | None:
        """How many names stand for more than one table, and the first of them."""
        from tidemark.catalog.packing import listed_twice

        return listed_twice(self._batches)


@dataclass(frozen=True, slots=True)
class Listing:
    """All of a source in one snapshot. `clock` is the source's own time in UTC, taken before anything was listed."""

    identity: str
    clock: datetime
    databases: tuple[DatabaseFacts, ...]
    schemas: tuple[SchemaFacts, ...]
    # Whatever is given is packed; a pack of a large source gives `PackedTables` of an iterator.
    tables: Sequence[TableFacts]

    def __post_init__(self) -> None:
        packed = self.tables if isinstance(self.tables, PackedTables) else PackedTables(self.tables)
        object.__setattr__(self, "tables", packed)
        twice = packed.twice()
        if twice:
            raise DuplicateName(
                f"the source listed {twice[0]} tables more than once, first {' / '.join(twice[1])}; "
                "nothing was read. Look for the duplicate in the source's own catalogue."
            )

    @property
    def packed(self) -> PackedTables:
        assert isinstance(self.tables, PackedTables), "packed above"
        return self.tables
