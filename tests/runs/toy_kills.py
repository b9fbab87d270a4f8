"""The toy in the kill suite: what a system has to bring, and no more."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.runs.kills import Scenario, Victim, recovery
from tests.runs.toy import Sum, add_up
from tidemark.config import load_config
from tidemark.platform import Platform
from tidemark.runs.upkeep import keep_up


def opened(folder: Path) -> Sum:
    return Sum(Platform(load_config(folder / "tidemark.yaml")))


@dataclass
class ToyVictim(Victim):
    folder: Path
    toy: Sum

    @classmethod
    def make(cls, folder: Path) -> "ToyVictim":
        folder.mkdir(parents=True)
        (folder / "tidemark.yaml").write_text("store: store\n")
        (folder / "source.txt").write_text("1 2 3\n")
        return cls(folder, opened(folder))

    @classmethod
    def attach(cls, folder: Path) -> "ToyVictim":
        return cls(folder, opened(folder))

    def __reduce__(self) -> tuple[Any, ...]:
        return ToyVictim.attach, (self.folder,)

    @property
    def table(self) -> str:
        raise NotImplementedError("its sum is an object, and no table")

    @property
    def subject(self) -> Sum:
        return self.toy

    def reopen(self) -> None:
        self.toy = opened(self.folder)

    def run(self) -> None:
        add_up(self.toy)

    def feed(self, *numbers: int) -> None:
        with (self.folder / "source.txt").open("a") as file:
            file.write(" ".join(map(str, numbers)) + "\n")

    def maintain(self) -> None:
        keep_up(self.toy, None)  # type: ignore[arg-type]  # it has no tables

    # --- what must hold ----------------------------------------------------------------------------------------------

    def kept(self) -> None: ...

    def undisturbed(self) -> None: ...

    def shown(self) -> Any:
        found = self.toy.platform.store.find("toy/numbers/sum.json")
        published = json.loads(found.body) if found else None
        return published and (published["total"], published["lines"])

    @property
    def mark(self) -> str | None:
        found = self.toy.control.marks.get(self.toy.address)
        return found.value if found else None

    def check_settled(self) -> None:
        numbers = (self.folder / "source.txt").read_text().split()
        assert self.shown() == (sum(map(int, numbers)), len(numbers))
        assert self.mark == str(len(numbers))

    def mark_is_ahead(self) -> bool:
        shown = self.shown()
        return self.mark is not None and (shown is None or int(self.mark) > shown[1])

    def moved_the_mark(self) -> str | None:
        moves = self.toy.control.marks.audit(self.toy.address)
        return moves[0].run_id if moves else None

    def strays(self) -> list[str]:
        temporary = [str(path) for path in self.folder.rglob("*") if ".tmp" in path.name]
        return [*temporary, *(info.key for info in self.toy.platform.store.list("toy/numbers/staged"))]


def ran(victim: ToyVictim) -> None:
    victim.run()


def changed(victim: ToyVictim) -> None:
    victim.run()
    victim.feed(10)


def nothing(victim: ToyVictim) -> None: ...


OF_EVERY_RUN = ("run.after_lease", "run.after_begin", "run.after_finish")
INCREMENTAL = Scenario(changed, ToyVictim.run, (*OF_EVERY_RUN, "toy.staged", "toy.published"), whole=True)
SCENARIOS = {
    "first run": Scenario(nothing, ToyVictim.run, (*OF_EVERY_RUN, "toy.published"), whole=True),
    "incremental run": INCREMENTAL,
    "unchanged run": Scenario(ran, ToyVictim.run, OF_EVERY_RUN, whole=True),
    "upkeep": Scenario(ran, ToyVictim.maintain, OF_EVERY_RUN, whole=True),
    "recovery of a published run": recovery(INCREMENTAL, "toy.published"),
    "recovery of a staged run": recovery(INCREMENTAL, "toy.staged"),
}
