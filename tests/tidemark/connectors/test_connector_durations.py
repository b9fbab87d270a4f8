"""Durations in manifests are ISO 8601 and of a fixed length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tidemark.connectors.durations import Duration

pytestmark = pytest.mark.fast

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT5M", 300),
        ("P1D", 86_400),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("P2W", 14 * 86_400),
        ("P1DT2H3M4S", 93_784),
        ("PT1.5H", 5400),
        ("PT0S", 0),
        ("pt5m", 300),
    ],
)
def test_a_duration_is_so_many_seconds(text: str, seconds: float) -> None:
    assert Duration.parse(text).nanoseconds == seconds * SECOND


@pytest.mark.parametrize("text", ["P1Y", "P1M", "P1Y2M3D", "P0.5Y", "P3MT5M"])
def test_months_and_years_are_refused_because_they_have_no_fixed_length(text: str) -> None:
    with pytest.raises(ValueError, match="no fixed length"):
        Duration.parse(text)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "5M", "P5", "PT5", "-PT5M", "P1DT", "PT5M3H", "PT1.5H3M", "PT0.0000000001S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Allowed"):
        Duration.parse(text)


def test_a_duration_beyond_a_century_is_refused() -> None:
    with pytest.raises(ValueError, match="hundred years"):
        Duration.parse("P999999D")


@given(st.integers(0, 10**6), st.integers(0, 10**9 - 1))
def test_every_nanosecond_counts(seconds: int, nanoseconds: int) -> None:
    text = f"PT{seconds}.{nanoseconds:09}S"
    assert Duration.parse(text).nanoseconds == seconds * SECOND + nanoseconds
    assert str(Duration.parse(text)) == text


def test_durations_compare_by_length() -> None:
    assert Duration.parse("PT60M") == Duration.parse("PT1H")
    assert Duration.parse("PT59M") < Duration.parse("PT1H")


def test_a_model_takes_and_gives_durations_as_text() -> None:
    class Window(BaseModel):
        span: Duration

    window = Window(span="PT5M")  # type: ignore[arg-type]
    assert window.model_dump() == {"span": "PT5M"}
    assert Window.model_json_schema()["properties"]["span"]["type"] == "string"
    for wrong in (5, None, "5m"):
        with pytest.raises(ValidationError, match="Allowed"):
            Window(span=wrong)  # type: ignore[arg-type]
