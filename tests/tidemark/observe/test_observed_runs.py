"""A real run, as metrics, logs and lineage see it; its process is killed, and the next one recovers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.runs.toy_kills import opened
from tests.services.lineage import LineageBackend, lineage_backend
from tidemark.observe.metrics import ControlCollector, exposition

ROOT = Path(__file__).parents[3]
OBSERVED = """
import sys
from pathlib import Path
from tests.runs.toy import add_up
from tests.runs.toy_kills import opened
from tidemark import observe
toy = opened(Path(sys.argv[1]))
stop = observe.start(toy.platform.config)
add_up(toy, sys.argv[2], dagster_run=sys.argv[3])
stop()
"""
DAGSTER_RUN = "0a0bdc22-63c6-4b0e-9d6b-0a5a4b7b6a55"
KILLED, NEXT = "b3f8a2c4-0e0f-4f52-8f0a-111111111111", "b3f8a2c4-0e0f-4f52-8f0a-222222222222"


@pytest.fixture
def backend() -> Iterator[LineageBackend]:
    with lineage_backend() as server:
        yield server


@pytest.mark.fault
def test_a_killed_run_and_its_successor_are_seen_to_their_ends(tmp_path: Path, backend: LineageBackend, monkeypatch) -> None:
    (tmp_path / "tidemark.yaml").write_text(yaml.safe_dump({"store": "store", "openlineage": {"url": backend.url}}))
    (tmp_path / "source.txt").write_text("1 2 3\n")
    monkeypatch.setenv("TIDEMARK_LOG", "json")

    def observed(run_id: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", OBSERVED, str(tmp_path), run_id, DAGSTER_RUN]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    monkeypatch.setenv("TIDEMARK_FAULT", "toy.staged")
    assert observed(KILLED).returncode == -9
    monkeypatch.delenv("TIDEMARK_FAULT")
    done = observed(NEXT)
    assert done.returncode == 0, done.stderr

    ends = [(event["run"]["runId"], event["eventType"]) for event in backend.events if event["eventType"] != "START"]
    assert ends == [(KILLED, "ABORT"), (NEXT, "COMPLETE")]
    assert backend.events[-1]["run"]["facets"]["parent"]["run"]["runId"] == DAGSTER_RUN

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines if line["event"].startswith("run_")] == ["run_ended", "run_started", "run_ended"]
    assert [line["step"] for line in lines if line["event"] == "step_ended"] == [
        "read",
        "stage",
        "verify",
        "publish",
        "mark",
    ]

    with closing(ControlCollector(opened(tmp_path).platform.config.control)) as collector:
        families = text_string_to_metric_families(exposition(collector))
    found = {(sample.name, sample.labels.get("status")): sample.value for family in families for sample in family.samples}
    assert (found["tidemark_runs_total", "abandoned"], found["tidemark_runs_total", "published"]) == (1, 1)
