"""A PostgreSQL that has gone without a word is noticed by everybody who reads it."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from tidemark.catalog.packs.postgresql import _conninfo
from tidemark.connectors.kinds._sql_dialects.adbc_driver import PATIENCE
from tidemark.control.engines import POSTGRESQL
from tidemark.keepalive import KEEPALIVE

pytestmark = pytest.mark.fast


def test_every_client_of_postgresql_has_the_same_patience() -> None:
    catalogue = conninfo_to_dict(_conninfo("postgresql://user@host/database"))
    for settings in (catalogue, PATIENCE, POSTGRESQL):
        assert {name: int(settings[name]) for name in KEEPALIVE} == KEEPALIVE


def test_a_url_may_say_otherwise() -> None:
    assert conninfo_to_dict(_conninfo("postgresql://user@host/database?keepalives_idle=99"))["keepalives_idle"] == "99"
