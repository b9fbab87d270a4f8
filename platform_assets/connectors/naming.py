"""Streams by the names that people give at a shell: TENANT/CONNECTOR/STREAM, or a part of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from platform_assets.opening import subject_of
from spark_code.connectors.system import STREAM, parts_of
from tidemark.cli.completing import subject_names
from tidemark.cli.options import ConfigFile

if TYPE_CHECKING:
    from spark_code.connectors.subject import StreamSubject
    from tidemark.config import Config
    from tidemark.control import Marks

StreamName = Annotated[
    str,
    typer.Argument(metavar="TENANT/CONNECTOR/STREAM", help="A stream of a tenant.", autocompletion=subject_names(STREAM)),
]


def address_of(name: str) -> str:
    from tidemark.address import Address

    return str(Address.stream(*parts_of(name, 3, 3)))


def opened(config: ConfigFile, name: str) -> "StreamSubject":
    from tidemark.config import load_config

    subject: StreamSubject = subject_of(load_config(config), STREAM, name)
    return subject


def marks_of(config: "Config", tenant: str) -> "Marks":
    from tidemark.connectors.manifests import checked_tenant
    from tidemark.control import ControlDatabase

    return ControlDatabase(config.control).sealed_marks(checked_tenant(config, tenant))


def marks_to_look_at(config: "Config", tenant: str) -> "Marks":
    """The same for those who move none: where nothing is recorded nothing is sealed, and no file of keys is written."""
    from tidemark.connectors.manifests import checked_tenant
    from tidemark.control import ControlDatabase
    from tidemark.control.sealing import Keyring

    control = ControlDatabase(config.control)
    return control.sealed_marks(checked_tenant(config, tenant), None if control.exists else Keyring.temporary())
