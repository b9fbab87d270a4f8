"""What becomes of a slice that cannot be read, without Spark."""

import pytest

from spark_code.connectors.slices import SliceDone, SliceLander
from tidemark.connectors.contract import Slice
from tidemark.errors import SliceFailed

pytestmark = pytest.mark.fast


class Stumbling(SliceLander):
    """Fails at the slice 1, and notes which it began."""

    def __init__(self) -> None:
        object.__setattr__(self, "begun", [])

    def land(self, slice: Slice) -> SliceDone:
        self.begun.append(slice.number)  # type: ignore[attr-defined]
        if slice.number == 1:
            raise SliceFailed("slice 1 could not be read.")
        return SliceDone(slice.number, 1, 1, 0, 0, (), ())


def test_after_a_slice_that_failed_no_other_of_its_group_is_begun_and_the_next_run_is_free() -> None:
    lander = Stumbling()
    told = [lander.told(Slice(number), "a run") for number in range(3)]
    assert [list(each) for each in told] == [["done"], ["failed"], []]
    assert list(lander.told(Slice(2), "the run after it")) == ["done"]
    assert lander.begun == [0, 1, 2]  # type: ignore[attr-defined]
