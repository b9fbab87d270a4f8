"""The catalogue as a system. Spark is imported when a subject is opened: a wrong name should not wait for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemark.runs.system import System
from tidemark.subjects import configured_connections

if TYPE_CHECKING:
    from spark_code.catalog.subject import CatalogSubject
    from spark_code.platform import Platform
    from tidemark.checks import CheckResult
    from tidemark.config import Config


def select(config: "Config", names: Sequence[str]) -> list[str]:
    return [config.connection(name).address for name in names]


def open_connection(platform: "Platform", name: str) -> "CatalogSubject":
    """The connection with its state."""
    settings = platform.config.connection(name)
    from spark_code.catalog.subject import CatalogSubject

    return CatalogSubject(platform, settings)


def compared(subject: "CatalogSubject") -> "list[CheckResult]":
    """Everything that is published, compared with what it was made from; nothing published, nothing to compare."""
    from spark_code.catalog.audit import audit

    return audit(subject, whole=True) if subject.published().snapshot is not None else []


CATALOG = System(
    noun="catalog",
    summary="The metadata catalogue: databases, schemas, tables and columns of connections.",
    form="CONNECTION",
    configured=configured_connections,
    place=1,
    open=open_connection,
    select=select,
    audit=compared,
)
