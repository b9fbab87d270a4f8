"""What a source pack is, what it tells, and how one is found by the name of its app.

To add a pack, put one file into this folder (or an entry point into the group `tidemark.packs`) with a subclass of
`SourcePack` that names its `app`.

The rule every pack with a digest keeps: the digest of a table covers exactly the facts that `columns()` yields for it
and those of its `TableFacts` that a reader of the catalogue sees. Then nothing a full read would show can change
unseen, and nothing else (grants, data, statistics) looks like a change.
"""

import hashlib
import importlib
import json
import pkgutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal

from tidemark.catalog.scope import Scope
from tidemark.errors import ConfigError, DuplicateName

ENTRY_POINTS = "tidemark.packs"


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    name: str
    comment: str | None


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """`listed` is False for a schema that exists but does not show its tables to us: they are unknown, not removed."""

    database: str
    name: str
    comment: str | None
    listed: bool
    why_not: str | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """`created_at` and `changed_at` are only filled by packs whose signal is a clock."""

    database: str
    schema: str
    name: str
    kind: str
    object_id: str
    digest: str
    comment: str | None
    definition: str | None
    column_count: int
    created_at: datetime | None = None
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """`primary_key` is the place in the key, from 1; `foreign_keys` are the (database, schema, table, column) meant."""

    name: str
    ordinal: int
    data_type: str
    length: int | None
    precision: int | None
    scale: int | None
    nullable: bool
    default: str | None
    comment: str | None
    primary_key: int | None
    foreign_keys: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table whose columns are asked for."""

    database: str
    schema: str
    name: str
    object_id: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All of a source in one snapshot. `clock` is the source's own time in UTC, taken before anything was listed."""

    identity: str
    clock: datetime
    databases: tuple[DatabaseFacts, ...]
    schemas: tuple[SchemaFacts, ...]
    tables: tuple[TableFacts, ...]

    def __post_init__(self) -> None:
        names = Counter((table.database, table.schema, table.name) for table in self.tables)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise DuplicateName(
                f"the source listed {len(twice)} tables more than once, first {' / '.join(twice[0])}; "
                "nothing was read. Look for the duplicate in the source's own catalogue."
            )


class SourcePack(ABC):
    """Reads the catalogue of one kind of database. Holds nothing but the URL; every call has its own connection."""

    app: ClassVar[str]
    signal: ClassVar[Literal["digest", "clock"]]
    schemes: ClassVar[tuple[str, ...]]

    _by_app: ClassVar[dict[str, type["SourcePack"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "app" in cls.__dict__:
            SourcePack._by_app[cls.app] = cls

    def __init__(self, url: str) -> None:
        if url.partition("://")[0] not in self.schemes:
            # The URL itself stays out of the message: it may hold a password.
            allowed = " or ".join(f"{scheme}://" for scheme in self.schemes)
            raise ConfigError(f"the url of a {self.app} connection must start with {allowed}")
        self.url = url
        self.target = self.target_of(url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target})"

    @staticmethod
    @abstractmethod
    def target_of(url: str) -> str:
        """Where the URL points, fit for messages: no password, no options. ConfigError if it cannot be read."""

    @abstractmethod
    def listing(self, scope: Scope, since: datetime | None = None) -> Listing:
        """Databases, schemas and the tables in scope. `since` matters only where the signal is a clock."""

    @abstractmethod
    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, list[ColumnFacts] | None]]:
        """Every asked table once, with its columns in order; None if it is no longer there. Never a query per table."""

    def fingerprint(self, scope: Scope) -> str:
        """Differs whenever `listing` would. A pack that talks to a server computes it there and sends one row."""
        listing = self.listing(scope)
        return digest_of(
            listing.identity,
            [astuple(database) for database in listing.databases],
            [astuple(schema) for schema in listing.schemas],
            [(table.schema, table.name, table.object_id, table.digest, str(table.changed_at)) for table in listing.tables],
        )


def digest_of(*facts: object) -> str:
    """A digest of facts (text, numbers, None, sequences of them) computed here. JSON keeps null and '' apart."""
    return hashlib.blake2b(json.dumps(facts, separators=(",", ":")).encode(), digest_size=16).hexdigest()


def object_id_of(*parts: str) -> str:
    """An id where objects only have names: the parts, escaped so that a dot inside one does not separate."""
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in parts)


def database_file(url: str) -> Path:
    """The file of `scheme:///relative/path` or `scheme:////absolute/path`; options after `?` are not ours to obey."""
    scheme, _, rest = url.partition("://")
    path = rest.partition("?")[0]
    if not path.startswith("/") or path in ("/", "/:memory:"):
        raise ConfigError(f"the url must name a file: {scheme}:///relative/path or {scheme}:////absolute/path")
    return Path(path[1:])


def _load_packs() -> None:
    package = importlib.import_module("tidemark.catalog.packs")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def is_known(app: str) -> bool:
    """Whether there is a pack for the app. Installed packages are only searched if none of ours is."""
    _load_packs()
    return app in SourcePack._by_app or app in known_apps()


def known_apps() -> tuple[str, ...]:
    """The apps there is a pack for."""
    _load_packs()
    return tuple(sorted({*SourcePack._by_app, *entry_points(group=ENTRY_POINTS).names}))


def pack_for(app: str, url: str) -> SourcePack:
    """The pack of an app, ready to read the source at the URL."""
    _load_packs()
    if app not in SourcePack._by_app:
        # Only the pack asked for is loaded, so that a broken one installed beside it harms nobody.
        for entry_point in entry_points(group=ENTRY_POINTS, name=app):
            entry_point.load()
    if app not in SourcePack._by_app:
        near = get_close_matches(app, known_apps(), n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"there is no source pack '{app}'. Known: {', '.join(known_apps())}.{hint}")
    return SourcePack._by_app[app](url)
