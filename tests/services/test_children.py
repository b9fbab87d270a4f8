"""Children have nothing of the test process: no thread, no lock, no object that waits for either."""

import gc
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver, get_context
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.catalog.harness import Catalog
from tests.services.children import IMPORTED, KILLED, Child, ChildDidNotEnd, forker, in_child

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
# What the test process has and a child must not have.
HELD: list[object] = []


@pytest.fixture
def kafka_garbage() -> Iterator[None]:
    """Clients of Kafka that only the collector of garbage finds, and that have threads."""
    gc.collect()
    gc.disable()
    consumer = Consumer(NO_BROKER | {"group.id": "somebody"})
    consumer.subscribe(["orders"])
    ring: list[object] = [consumer, *(Producer(NO_BROKER) for _ in range(10))]
    ring.append(ring)
    del ring, consumer
    yield
    gc.enable()
    gc.collect()


def test_a_child_collects_garbage_when_the_test_process_has_clients_of_kafka(kafka_garbage: None) -> None:
    assert in_child(gc.collect) == 0


def test_children_are_forked_from_a_process_of_one_thread_that_has_imported_everything() -> None:
    forker()
    assert in_child(_forked_from_one_thread, forkserver._forkserver._forkserver_pid) == 0


def _forked_from_one_thread(parent: int) -> None:
    assert os.getppid() == parent
    assert len(os.listdir(f"/proc/{parent}/task")) == 1
    assert len(os.listdir("/proc/self/task")) == 1
    assert set(IMPORTED) <= sys.modules.keys()
    assert "tests.conftest" not in sys.modules


def test_a_child_has_no_object_of_the_test_process() -> None:
    HELD.append(Producer(NO_BROKER))
    try:
        assert in_child(_has_no_kafka) == 0
    finally:
        HELD.clear()


def _has_no_kafka() -> None:
    assert HELD == []
    assert not [each for each in gc.get_objects() if isinstance(each, Producer | Consumer)]


def test_a_child_that_does_not_end_is_named_with_its_stack(tmp_path: Path) -> None:
    child = Child(_stay, tmp_path / "begun", environment=os.environ)
    while not (tmp_path / "begun").exists():
        assert child.process.is_alive()
    with pytest.raises(ChildDidNotEnd, match=r"(?s)did not end in 0 s.*in _stay"):
        child.wait(0)
    assert not child.process.is_alive()


def _stay(begun: Path) -> None:
    begun.touch()
    while True:
        time.sleep(60)


def test_a_child_has_the_environment_of_the_test_and_its_output_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FROM_THE_TEST", "yes")
    assert in_child(_complain, FOR_THE_CHILD="too") == 1
    said = capsys.readouterr().out
    assert "yes too" in said
    assert "ValueError: no" in said


def _complain() -> None:
    sys.stdout.write(f"{os.environ['FROM_THE_TEST']} {os.environ['FOR_THE_CHILD']}\n")
    raise ValueError("no")


def test_a_test_process_cannot_be_forked() -> None:
    with pytest.raises(RuntimeError, match="in_child"):
        os.fork()
    with pytest.raises(RuntimeError, match="in_child"):
        os.forkpty()
    with pytest.raises(RuntimeError, match="in_child"):
        get_context("fork").Process(target=print).start()


@pytest.mark.fault
def test_a_child_uses_the_spark_of_the_test_process_which_stays_usable_when_it_is_killed(catalog: Catalog) -> None:
    catalog.source.execute("CREATE TABLE note (id INTEGER)")
    catalog.run()
    catalog.source.execute("CREATE TABLE tag (id INTEGER)")
    assert in_child(_is_of_the_jvm, catalog, catalog.platform.spark.sparkContext.applicationId) == 0
    assert in_child(Catalog.run, catalog, TIDEMARK_FAULT="lake.after_publish") == KILLED
    assert catalog.run().status == "unchanged"
    assert catalog.columns_of("tag") == ["id"]


def _is_of_the_jvm(catalog: Catalog, application: str) -> None:
    spark = catalog.platform.spark
    assert spark.sparkContext.applicationId == application
    doubled = spark.range(3).mapInArrow(lambda batches: batches, "id long")
    assert [row.id for row in doubled.collect()] == [0, 1, 2]
