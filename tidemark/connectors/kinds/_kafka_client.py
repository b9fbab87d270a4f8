"""Asks Kafka's brokers about topics, and reads ranges of offsets. No consumer group is joined, nothing is committed."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Arrival
from confluent_kafka import TopicCollection as Names
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tidemark.errors import ConfigError, PositionLost, SourceError, SourceRefused, SourceUnreachable

# A page ends at so many bytes, however few messages they are: one may have 20 MB.
PAGE_BYTES = 32 * 1024 * 1024
GLANCE_SECONDS = 0.05
# What brokers older than topic ids say.
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

LOGIN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
SILENCE = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError.REQUEST_TIMED_OUT,
}
LEADERLESS = {KafkaError._NOENT, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION}
MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
PASSED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

# The client writes to stderr unless it is given a logger. What it says names hosts and logins: it goes nowhere.
UNHEARD = logging.getLogger("tidemark.connectors.kafka")
UNHEARD.addHandler(logging.NullHandler())
UNHEARD.propagate = False

# A broker that comes back is noticed before it counts as silent.
ALWAYS = {"reconnect.backoff.max.ms": 1000}
READING = {
    # The client wants a group although none is joined.
    "group.id": "tidemark",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Never to another place than the one that was requested.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
}

ENDS = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, `end` excluded. Not every one has a message."""

    partition: int
    start: int
    end: int


class Leaderless(SourceUnreachable):
    """A partition has no leader: soon after its broker was lost, or the topic was made."""


class Message(NamedTuple):
    """A message as the broker keeps it. Without a value, it says that what has its key is gone."""

    partition: int
    offset: int
    # Since 1970, if the broker knows.
    milliseconds: int | None
    key: bytes | None
    value: bytes | None

    @property
    def position(self) -> str:
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: str | None
    partitions: tuple[int, ...]
    internal: bool


class Brokers:
    """A cluster, asked with a time limit. `pace` is called before every request."""

    def __init__(self, options: Mapping[str, Any], timeout: float, pace: Callable[[], None]) -> None:
        self._options, self._timeout, self._pace = dict(options), timeout, pace
        self._troubles: set[int] = set()
        self._admin: AdminClient = self._opened(AdminClient, {})

    def names(self) -> list[str]:
        self._pace()
        try:
            return sorted(self._admin.list_topics(timeout=self._timeout).topics)
        except KafkaException as error:
            self._admin.poll(0)
            raise self._named(error.args[0], "the list of topics") from None

    def topics(self, names: Iterable[str], asker: str) -> list[Topic]:
        """What the cluster says of topics. Unlike asking for metadata, it never makes one."""
        self._pace()
        wanted = list(names)
        if not wanted:
            return []
        asked = self._admin.describe_topics(Names(wanted), request_timeout=self._timeout)
        return [
            Topic(
                name,
                None if str(answer.topic_id) == NO_ID else str(answer.topic_id),
                tuple(sorted(each.id for each in answer.partitions)),
                answer.is_internal,
            )
            for name, answer in self._answers(asked, asker).items()
        ]

    def bounds(self, topic: Topic, asker: str) -> list[Range]:
        """What every partition holds, from its first offset to where the first open transaction begins."""
        lows, highs = (self._offsets(topic, end, asker) for end in ENDS)
        return [Range(number, lows[number], highs[number]) for number in topic.partitions]

    def _offsets(self, topic: Topic, end: OffsetSpec, asker: str) -> dict[int, int]:
        limit = time.monotonic() + self._timeout
        while True:
            self._pace()
            partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
            asked = self._admin.list_offsets(
                dict.fromkeys(partitions, end),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            )
            try:
                return {at.partition: answer.offset for at, answer in self._answers(asked, asker).items()}
            except Leaderless:
                if time.monotonic() > limit:
                    raise
                time.sleep(GLANCE_SECONDS)
                # The client remembers for long that there was no leader.
                self._admin = self._opened(AdminClient, {})

    def batches(self, topic: str, ranges: Iterable[Range], most: int, asker: str) -> Iterator[list[Message]]:
        """The messages of the ranges in their order, at most so many at a time."""
        consumer = self._opened(Consumer, READING)
        waiting: list[Message] = []
        held = 0
        try:
            for wanted in ranges:
                for message in self._messages(consumer, topic, wanted, most, asker):
                    waiting.append(message)
                    held += len(message.value or b"")
                    if len(waiting) == most or held >= PAGE_BYTES:
                        yield waiting
                        waiting, held = [], 0
            if waiting:
                yield waiting
        finally:
            consumer.close()

    def _messages(self, consumer: Consumer, topic: str, wanted: Range, most: int, asker: str) -> Iterator[Message]:
        """The range is read when the consumer has come to its end: aborted, control and compacted messages leave gaps."""
        where = f"{asker}: partition {wanted.partition} of {topic}"
        consumer.assign([TopicPartition(topic, wanted.partition, wanted.start)])
        while True:
            self._pace()
            for arrival in self._arrived(consumer, most, where):
                error, offset = arrival.error(), arrival.offset() or 0
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    self._judge(error, where)
                elif offset >= wanted.end:
                    return
                elif error is None:
                    kind, stamp = arrival.timestamp()
                    known = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
                    yield Message(wanted.partition, offset, known, arrival.key(), arrival.value())
                    if offset + 1 == wanted.end:
                        return

    def _arrived(self, consumer: Consumer, most: int, where: str) -> list[Arrival]:
        """What is there; if nothing is, what comes first."""
        silent_since = time.monotonic()
        while (first := consumer.poll(GLANCE_SECONDS)) is None:
            if self._troubles & LOGIN:
                raise refused(where)
            if time.monotonic() - silent_since > self._timeout:
                raise SourceUnreachable(
                    f"{where}: no message came for {self._timeout:g} s, and its end was not reached. Check that the brokers "
                    "run and that its leader is there, or set `timeout` higher."
                )
        return [first, *consumer.consume(most, timeout=0)]

    def _judge(self, error: KafkaError, where: str) -> None:
        # No group is joined, so the right to one is not needed.
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED or error.code() in SILENCE:
            return
        raise self._named(error, where)

    def _answers(self, asked: Mapping[Key, "Future[Any]"], asker: str) -> dict[Key, Any]:
        limit = time.monotonic() + self._timeout + 1
        while not all(each.done() for each in asked.values()) and time.monotonic() < limit:
            self._admin.poll(GLANCE_SECONDS)  # without it, nobody reports a refused login
            if self._troubles & LOGIN:
                raise refused(asker)
        try:
            return {key: each.result(0) for key, each in asked.items()}
        except KafkaException as error:
            raise self._named(error.args[0], asker) from None
        except TimeoutError:
            raise self._unreachable(asker) from None

    def _named(self, error: KafkaError, asker: str) -> SourceError:
        code = error.code()
        if code in LOGIN or self._troubles & LOGIN:
            return refused(asker)
        if code in SILENCE:
            return self._unreachable(asker)
        if code in LEADERLESS:
            return Leaderless(f"{asker}: a partition has no leader now. Check that all brokers run, and run again.")
        if code in MISSING:
            return SourceError(f"{asker}: there is no such topic. Check `source` and `topic`, or make it.")
        if code in PASSED:
            return lost(asker, "no longer has the offsets that were to be read; retention has passed them")
        return SourceError(f"{asker}: Kafka answered {error.name()}.")

    def _unreachable(self, asker: str) -> SourceUnreachable:
        servers = self._options["bootstrap.servers"]
        return SourceUnreachable(
            f"{asker}: no broker of {servers} answered within {self._timeout:g} s. Check `brokers`, and that they run."
        )

    def _opened(self, client: type, more: Mapping[str, Any]) -> Any:
        troubles = self._troubles  # not self: the client would keep its owner alive, and that one the client
        troubles.clear()

        def note(error: KafkaError) -> None:
            troubles.add(error.code())

        try:
            return client({**self._options, **ALWAYS, **more, "error_cb": note}, logger=UNHEARD)
        except KafkaException as error:
            raise ConfigError(
                f"settings of a kafka connector: the client does not take a value under `config` ({error.args[0].name()})."
            ) from None


def refused(asker: str) -> SourceRefused:
    return SourceRefused(f"{asker}: Kafka refused the login, or the login may not read it. Check the credentials.")


def lost(asker: str, what: str) -> PositionLost:
    return PositionLost(
        f"{asker} {what}. Messages may be lost. Keep them longer than the time between two runs; to go on with what is "
        "still there, read everything with `tidemark stream run --full`."
    )
