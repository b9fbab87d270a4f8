"""What a code server says of the runs that it started."""

import json

from dagster import DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import CanCancelExecutionRequest, CanCancelExecutionResult
from dagster._serdes import deserialize_value

ANSWER_SECONDS = 5


def is_lost(run: DagsterRun) -> bool:
    """Whether the code server at the run's address answers that it does not execute it: it is a new one, and the server that
    started the run is gone. False where nobody answers: then nothing is known."""
    address = run.tags.get(GRPC_INFO_TAG)
    if address is None:
        return False
    server = json.loads(address)
    client = DagsterGrpcClient(
        port=server.get("port"),
        socket=server.get("socket"),
        host=server.get("host"),
        use_ssl=bool(server.get("use_ssl", False)),
    )
    try:
        answer = client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id), timeout=ANSWER_SECONDS)
    except DagsterUserCodeUnreachableError:
        return False
    return not deserialize_value(answer, CanCancelExecutionResult).can_cancel
