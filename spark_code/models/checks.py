"""Checks of a model on rows that nobody reads yet."""

from collections.abc import Iterable, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from spark_code.models.adapter import ModelAdapter, first_words
from spark_code.models.target import viewed
from tidemark.checks import CheckResult
from tidemark.errors import ConfigError
from tidemark.models.checks import ModelCheck
from tidemark.models.subject import ModelSubject


def run_checks(
    model: str, staged: DataFrame, published: DataFrame | None, checks: Sequence[ModelCheck]
) -> list[CheckResult]:
    """The verdict of every check on the staged rows."""
    if not checks:
        return []
    with viewed(staged, "staged") as after:
        if published is None:
            return list(_verdicts(model, staged, after, None, checks))
        with viewed(published, "published") as before:
            return list(_verdicts(model, staged, after, before, checks))


def _verdicts(
    model: str, staged: DataFrame, after: str, before: str | None, checks: Sequence[ModelCheck]
) -> Iterable[CheckResult]:
    for check in checks:
        try:
            yield check.verdict(staged.sparkSession.sql(check.query(after, before)).collect()[0].asDict())
        except AnalysisException as wrong:
            raise ConfigError(f"{model}: the check {check.name} cannot be run: {first_words(wrong)}") from None


def failures_at(adapter: ModelAdapter, subject: ModelSubject, snapshot: int) -> list[CheckResult]:
    """Blocking checks that the rows of an old snapshot fail. Without checks Spark is not needed.

    How far the number of rows moves is no question here: to go back may well take most of them away.
    """
    checks = subject.metadata.checks if subject.metadata else ()
    if not checks:
        return []
    rows = adapter.spark.read.option("versionAsOf", str(snapshot)).table(subject.place.spark_name)
    return blocking_failures(run_checks(subject.name, rows, None, checks), checks)


def blocking_failures(results: Sequence[CheckResult], checks: Sequence[ModelCheck]) -> list[CheckResult]:
    """Failures that keep a run from publishing."""
    serious = {check.name for check in checks if check.blocking}
    return [result for result in results if not result.passed and result.name in serious]
