"""Windows of time of a model, up to the one that is under way."""

from dagster import (
    DailyPartitionsDefinition,
    HourlyPartitionsDefinition,
    MonthlyPartitionsDefinition,
    TimeWindowPartitionsDefinition,
    WeeklyPartitionsDefinition,
)

from tidemark.models.spec import Partitions

MONDAY = 1


def windows(partitions: Partitions) -> TimeWindowPartitionsDefinition:
    """The window that is under way is one of them: it can be rebuilt as well, and runs by the clock are of it."""
    if partitions.by == "week":
        return WeeklyPartitionsDefinition(partitions.start, day_offset=MONDAY, end_offset=1)
    made = {"hour": HourlyPartitionsDefinition, "day": DailyPartitionsDefinition, "month": MonthlyPartitionsDefinition}
    return made[partitions.by](partitions.start, end_offset=1)  # type: ignore[no-any-return]
