"""A toy system: numbers of a file are added up in a published object. It brings subject and steps; the rest is shared."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tidemark.checks import CheckResult
from tidemark.control import ControlDatabase, RunRecord, actor
from tidemark.faults import fault_point
from tidemark.platform import Platform
from tidemark.runs import Confirm, Mode, Reason, Run, Visible
from tidemark.runs.subject import SimpleSubject
from tidemark.runs.system import Configured, System


@dataclass(frozen=True)
class Sum(SimpleSubject):
    """The sum of the numbers in a file, one a line; the mark is how many lines were added."""

    platform: Platform
    name: str = "numbers"

    @property
    def address(self) -> str:
        return f"toy/{self.name}"

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    def visible(self) -> Visible | None:
        found = self.platform.store.find(f"toy/{self.name}/sum.json")
        said = json.loads(found.body) if found else {}
        return Visible(said["run_id"], None, said) if found else None

    def roll_forward(self, run: RunRecord, seen: Visible, confirm: Confirm) -> Mapping[str, Any]:
        if self.control.marks.version(self.address) == seen.record["expected"]:
            self.move(seen.record["lines"], seen.record["expected"], run.run_id)
        return {"rows": {"added": seen.record["lines"]}}

    def move(self, lines: int, expected: int, run_id: str) -> None:
        self.control.marks.move(self.address, expected or None, str(lines), run_id=run_id, actor=actor(), reason="run")

    def fence(self, run: RunRecord) -> None:
        found = self.platform.store.find(f"toy/{self.name}/sum.json")
        if found:  # the same again under another etag: whoever read the old one cannot publish any more
            self.platform.store.put_if_unchanged(f"toy/{self.name}/sum.json", found.body, found.etag)

    def undo(self, run: RunRecord) -> None:
        self.platform.store.delete(f"toy/{self.name}/staged/{run.run_id}.json")

    def repair(self, confirm: Confirm) -> None:
        self.platform.store.sweep()

    def tidy(self, run_id: str) -> None:
        self.platform.store.delete_prefix(f"toy/{self.name}/staged/")

    def forget(self, keep_runs: int) -> int:
        return self.platform.store.delete_prefix(f"toy/{self.name}/staged/")


def add_up(subject: Sum, run_id: str | None = None, *, full: bool = False, **options: Any) -> RunRecord:
    """The steps, in order: read what is behind the mark, stage the new sum, verify, publish, and the mark last."""
    store, staged = subject.platform.store, f"toy/{subject.name}/staged"
    published = f"toy/{subject.name}/sum.json"
    with Run(subject, run_id or str(uuid4()), **options) as run:
        mark = subject.control.marks.get(subject.address)
        old = 0 if full or mark is None else int(mark.value)
        why = Reason.REQUESTED if full else Reason.STATE_FOUND if mark else Reason.NO_STATE
        run.decide(Mode.INCREMENTAL if old else Mode.FULL, why)
        with run.step("read"):
            before = store.find(published)
            lines = (subject.platform.config.path.parent / "source.txt").read_text().split()
            new = lines[old:]
            run.advance("line", len(new), len(new))
        if not new:
            return run.finish("unchanged", detail={"rows": {"added": 0}})
        total = (json.loads(before.body)["total"] if before and old else 0) + sum(map(int, new))
        body = {"run_id": run.run_id, "total": total, "lines": len(lines), "expected": mark.version if mark else 0}
        with run.step("stage"):
            store.put(f"{staged}/{run.run_id}.json", json.dumps(body).encode())
            fault_point("toy.staged")
        with run.step("verify"):
            run.require([CheckResult("total_is_right", total == sum(map(int, lines)), f"{total}")])
        run.confirm()
        with run.step("publish"):
            staged_body = store.read(f"{staged}/{run.run_id}.json")
            if before is None:
                store.put_if_absent(published, staged_body)
            else:
                store.put_if_unchanged(published, staged_body, before.etag)
            run.published = True
            fault_point("toy.published")
        with run.step("mark"):
            subject.move(len(lines), body["expected"], run.run_id)
        return run.finish("published", detail={"rows": {"added": len(new)}})


TOY = System(
    noun="toy",
    summary="Sums of numbers in files.",
    form="SUM",
    configured=lambda config: [Configured("toy/numbers", "0 * * * *", upkeep="30 2 * * *")],
    open=Sum,
    run=add_up,
    compactor=lambda subject: None,  # type: ignore[arg-type,return-value]  # it has no tables
)
