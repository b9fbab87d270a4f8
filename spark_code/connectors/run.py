"""The run of a stream, with Spark for its engine. Its story is in `tidemark.connectors.run`."""

from typing import Any

from spark_code.connectors.engine import SparkStreamEngine
from spark_code.connectors.plan import IngestPlan
from spark_code.connectors.subject import StreamSubject
from tidemark.connectors.run import StreamRun


class IngestRun(StreamRun[StreamSubject, IngestPlan]):
    """One run of one stream."""

    def __init__(self, subject: StreamSubject, run_id: str, **options: Any) -> None:
        super().__init__(subject, run_id, SparkStreamEngine(subject, self, run_id), **options)
