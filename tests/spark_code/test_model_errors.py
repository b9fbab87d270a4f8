"""What a failed query of a model may say: words about the query, never words that quote rows."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

from spark_code.models.adapter import first_words

pytestmark = pytest.mark.fast


def test_words_about_the_query_are_kept_and_words_about_rows_are_not() -> None:
    about_query = AnalysisException(
        "[UNRESOLVED_COLUMN] A column with name `amout` cannot be resolved.\n\nJVM stacktrace: …"
    )
    assert first_words(about_query) == "[UNRESOLVED_COLUMN] A column with name `amout` cannot be resolved."
    about_rows = PySparkException("[CAST_INVALID_INPUT] The value 'canary-4711' of the type STRING cannot be cast.")
    assert "canary" not in first_words(about_rows)
