"""Every kind of DDL: the signals say what the case says, and a digest never lies."""

import pytest

from tests.catalog.ddl_cases import ALL, CASES, DUCKDB, POSTGRESQL, SQLITE, DdlCase, cases_of
from tests.catalog.sources import (
    EVERYTHING,
    TestedSource,
    assert_digests_tell_the_truth,
    labels_between,
    read_all,
)
from tidemark.catalog.packs import Listing, pack_for


def _cases(app: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases_of(app)])


def _timeless(listing: Listing) -> tuple[object, ...]:
    return listing.databases, listing.schemas, frozenset(listing.tables)


def _assert_the_case_holds(case: DdlCase, source: TestedSource) -> None:
    pack = pack_for(source.app, source.url)
    source.execute(*case.setup_for(source.app))
    old = pack.listing(EVERYTHING)
    before, fingerprint = read_all(pack, old), pack.fingerprint(EVERYTHING)
    pulse = pack.pulse()
    # A server has others, and a vacuum, that write at any time.
    assert source.app == POSTGRESQL or pack.pulse() == pulse, "to look changes nothing"
    source.execute(*case.change_for(source.app))
    new = pack.listing(EVERYTHING)
    after = read_all(pack, new)

    assert labels_between(before, after) == case.labels_for(source.app)
    assert_digests_tell_the_truth(before, after)
    assert (pack.fingerprint(EVERYTHING) == fingerprint) == (_timeless(old) == _timeless(new))
    assert pack.pulse() != pulse or pack.fingerprint(EVERYTHING) == fingerprint, "no change goes without a pulse"


@pytest.mark.fast
@_cases(SQLITE)
def test_sqlite_tells_that(case: DdlCase, sqlite: TestedSource) -> None:
    _assert_the_case_holds(case, sqlite)


@_cases(DUCKDB)
def test_duckdb_tells_that(case: DdlCase, duck: TestedSource) -> None:
    _assert_the_case_holds(case, duck)


@pytest.mark.service
@_cases(POSTGRESQL)
def test_postgresql_tells_that(case: DdlCase, postgresql: TestedSource) -> None:
    _assert_the_case_holds(case, postgresql)


@pytest.mark.fast
def test_there_are_cases_enough() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 45
    assert sum(len(case.apps) for case in CASES) >= 80
    assert all(len(cases_of(app)) >= 15 for app in ALL)
