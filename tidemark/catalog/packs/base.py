"""What a source pack is, what it returns, and how one is found by the name of its app.

To add a pack, put one file into this folder (or an entry point into the group `tidemark.packs`) with a subclass of
`SourcePack` that names its `app`.

The rule every pack with a digest keeps: the digest of a table covers exactly the facts that `columns()` yields for it
and those of its `TableFacts` that a reader of the catalogue sees. Then nothing a full read would show can change
unseen, and nothing else (grants, data, statistics) looks like a change.
"""

import hashlib
import importlib
import importlib.util
import json
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from datetime import datetime
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal

from tidemark.catalog.packs.facts import ColumnFacts as ColumnFacts
from tidemark.catalog.packs.facts import DatabaseFacts as DatabaseFacts
from tidemark.catalog.packs.facts import Partitioning as Partitioning
from tidemark.catalog.packs.facts import SchemaFacts as SchemaFacts
from tidemark.catalog.packs.facts import TableFacts as TableFacts
from tidemark.catalog.packs.facts import TableName as TableName
from tidemark.catalog.packs.facts import TableReading as TableReading
from tidemark.catalog.packs.facts import TableRef as TableRef
from tidemark.catalog.packs.listing import Listing as Listing
from tidemark.catalog.packs.listing import PackedTables as PackedTables
from tidemark.catalog.scope import Scope
from tidemark.errors import ConfigError

ENTRY_POINTS = "tidemark.packs"


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
    def columns(self, tables: Sequence[TableRef]) -> Iterator[tuple[TableRef, TableReading | None]]:
        """Every requested table once, as it is now, with its columns in order; None if no table has the name any more.

        Never a query per table. The facts of a table and its columns come from one reading, never from two.
        """

    def pulse(self) -> str | None:
        """A value that is cheap to ask for and moves whenever the fingerprint may have moved; None where there is none."""
        return None

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
    """Whether there is a pack for the app. A module of ours is called as its app, and only that one is imported; all others,
    and installed packages, are only searched if there is none."""
    if app.isidentifier() and importlib.util.find_spec(f"tidemark.catalog.packs.{app}"):
        importlib.import_module(f"tidemark.catalog.packs.{app}")
    return app in SourcePack._by_app or app in known_apps()


def known_apps() -> tuple[str, ...]:
    """The apps there is a pack for."""
    _load_packs()
    return tuple(sorted({*SourcePack._by_app, *entry_points(group=ENTRY_POINTS).names}))


def pack_for(app: str, url: str) -> SourcePack:
    """The pack of an app, ready to read the source at the URL."""
    _load_packs()
    if app not in SourcePack._by_app:
        # Only the requested pack is loaded, so that another one that is broken harms nobody.
        for entry_point in entry_points(group=ENTRY_POINTS, name=app):
            entry_point.load()
    if app not in SourcePack._by_app:
        near = get_close_matches(app, known_apps(), n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"there is no source pack '{app}'. Known: {', '.join(known_apps())}.{hint}")
    return SourcePack._by_app[app](url)
