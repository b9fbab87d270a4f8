"""A connection together with the places where its state, mark and runs are kept."""

from dataclasses import dataclass
from functools import cached_property

import orjson

from spark_code.catalog.diff import DiffWriter
from spark_code.catalog.state import StagedState
from spark_code.lake import Lake
from spark_code.parts import Parts, find_parts
from spark_code.platform import Platform
from tidemark.catalog.entities import EntityWriter
from tidemark.catalog.layout import CatalogLayout
from tidemark.catalog.marker import MarkerFile
from tidemark.catalog.mirror import Mirror
from tidemark.catalog.packs.base import SourcePack, pack_for
from tidemark.catalog.plan import RunPlan
from tidemark.catalog.published import Published, mark_subject, read_published
from tidemark.catalog.rows import STATE_SCHEMA
from tidemark.catalog.scope import Scope
from tidemark.clock import Clock
from tidemark.config import Connection
from tidemark.control import ControlDatabase
from tidemark.errors import PartialRun
from tidemark.store import ObjectStore


@dataclass(frozen=True)
class CatalogSubject:
    """What a run, a rollback or a reader of one connection works with."""

    platform: Platform
    connection: Connection

    @property
    def name(self) -> str:
        return self.connection.subject

    @property
    def mark(self) -> str:
        return mark_subject(self.name)

    @property
    def store(self) -> ObjectStore:
        return self.platform.store

    @property
    def control(self) -> ControlDatabase:
        return self.platform.control

    @property
    def lake(self) -> Lake:
        return self.platform.lake

    @property
    def clock(self) -> Clock:
        return self.platform.clock

    @property
    def layout(self) -> CatalogLayout:
        return CatalogLayout(self.connection.app, self.connection.id)

    @cached_property
    def pack(self) -> SourcePack:
        return pack_for(self.connection.app, self.connection.resolved_url())

    @property
    def scope(self) -> Scope:
        return Scope(tuple(self.connection.include), tuple(self.connection.exclude))

    @property
    def writer(self) -> EntityWriter:
        return EntityWriter(self.connection.app, self.connection.id)

    @property
    def marker(self) -> MarkerFile:
        return MarkerFile(self.store, self.layout.marker)

    @property
    def mirror(self) -> Mirror:
        settings = self.connection
        return Mirror(
            self.lake.reader, self.store, self.layout, self.clock, settings.column_chunk_size, settings.copy_workers
        )

    def published(self) -> Published:
        return read_published(self.lake.reader, self.control, self.layout, self.name)

    def diff_writer(self, run_id: str) -> DiffWriter:
        root = self.layout.diff(run_id)
        return DiffWriter(self.store, root, self.connection.column_chunk_size, self.connection.copy_workers)

    # --- what a run keeps between its steps --------------------------------------------------------------------------

    def save_plan(self, plan: RunPlan) -> None:
        self.store.put(f"{self.layout.run(plan.run_id)}/plan.json", plan.model_dump_json(indent=2).encode())

    def load_plan(self, run_id: str) -> RunPlan:
        found = self.store.find(f"{self.layout.run(run_id)}/plan.json")
        if found is None:
            raise PartialRun(
                f"{self.connection.name}: run {run_id} has no plan: its assets belong together. "
                f"Materialise all of them (job `catalog`), or `tidemark run {self.connection.name}`."
            )
        return RunPlan.model_validate_json(bytes(found.body))

    def save_staged(self, staged: StagedState) -> None:
        self.store.put(f"{self.layout.extracted(staged.run_id)}/staged.json", orjson.dumps(staged))

    def load_staged(self, run_id: str) -> StagedState:
        self.load_plan(run_id)
        told = orjson.loads(self.store.read(f"{self.layout.extracted(run_id)}/staged.json"))
        return StagedState(**told | {"vanished": tuple(told["vanished"])})

    def extracted(self, run_id: str, asset: str) -> Parts:
        return find_parts(self.store, STATE_SCHEMA, f"{self.layout.extracted(run_id)}/{asset}")
