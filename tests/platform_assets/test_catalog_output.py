"""What a run of the catalogue looks like to people."""

from datetime import UTC, datetime
from typing import Any

import pytest

from platform_assets.catalog.commands import print_labels
from tidemark.control import RunRecord

pytestmark = pytest.mark.fast
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def shown(capsys: pytest.CaptureFixture[str], **detail: Any) -> str:
    record = RunRecord(
        run_id="r1", subject="catalog/shop", dagster_run=None, status="published", mode="incremental", reason=None,
        base_snapshot=None, snapshot=1, marker=None, started_at=NOON, finished_at=NOON, error=None, detail=detail,
    )  # fmt: skip
    print_labels(record)
    return capsys.readouterr().out


def test_tables_that_vanished_while_they_were_read_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2 tables vanished while they were read" in shown(capsys, vanished=2)
    assert "1 table vanished while it was read" in shown(capsys, vanished=1)


def test_without_any_nothing_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "vanished" not in shown(capsys, vanished=0)
