import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.catalog.scope import Scope

pytestmark = pytest.mark.fast

NAMES = st.text(alphabet="ab.*[", min_size=1, max_size=4)
PATTERNS = st.lists(st.text(alphabet="ab.*?[]!", max_size=6), max_size=3).map(tuple)


def test_everything_is_in_scope_unless_something_else_is_said() -> None:
    assert Scope().covers("public", "note")


def test_a_table_is_in_scope_if_included_and_not_excluded() -> None:
    scope = Scope(include=("public.*", "audit.log_?"), exclude=("*.tmp_*",))
    assert scope.covers("public", "note")
    assert scope.covers("audit", "log_1")
    assert not scope.covers("audit", "log_10")
    assert not scope.covers("public", "tmp_note")


def test_case_counts() -> None:
    assert not Scope(include=("public.*",)).covers("Public", "note")


def test_a_schema_is_reached_if_a_table_of_it_could_be_in_scope() -> None:
    scope = Scope(include=("public.*", "a*t.log", "*.shared", "odd"), exclude=("private.*", "*.tmp_*"))
    assert scope.reaches("public")
    assert scope.reaches("audit")
    assert scope.reaches("anything")
    assert not scope.reaches("private")
    assert not Scope(include=("public.*", "odd")).reaches("odd")
    assert not Scope(include=("public.note",)).reaches("private")


@given(include=PATTERNS, exclude=PATTERNS, schema=NAMES, table=NAMES)
def test_a_schema_with_a_table_in_scope_is_reached(
    include: tuple[str, ...], exclude: tuple[str, ...], schema: str, table: str
) -> None:
    scope = Scope(include, exclude)
    assert scope.reaches(schema) or not scope.covers(schema, table)
