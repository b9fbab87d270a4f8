"""Checks of a model on rows that nobody reads yet."""

from collections.abc import Iterable, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from spark_code.models.adapter import first_words
from spark_code.models.target import viewed
from tidemark.checks import CheckResult
from tidemark.errors import ConfigError
from tidemark.models.checks import ModelCheck


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


def blocking_failures(results: Sequence[CheckResult], checks: Sequence[ModelCheck]) -> list[CheckResult]:
    """Failures that keep a run from publishing."""
    serious = {check.name for check in checks if check.blocking}
    return [result for result in results if not result.passed and result.name in serious]
