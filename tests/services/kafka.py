"""A real Kafka broker, one process that is its own controller, on 127.0.0.1.

Its jars come from Maven Central once, by the Ivy that pyspark brings, into the cache folder.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import pyspark
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from spark_code.java import java_home
from spark_code.session import IVY_SETTINGS, QUIET, cache_folder
from tests.services.ports import free_port

KAFKA = ("org.apache.kafka", "kafka_2.13", "4.1.1")
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
START_SECONDS = 90
FETCH_SECONDS = 600
USER, PASSWORD = "reader", f"secret-{uuid4().hex[:8]}"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{login}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
log.dirs={data}
# On, so that a test can tell who asks for a topic without making it.
auto.create.topics.enable=true
message.max.bytes=41943040
log.segment.bytes=67108864
log.index.size.max.bytes=65536
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.io.buffer.size=65536
log.cleaner.backoff.ms=100
num.network.threads=1
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# A broker that was killed is taken back as soon as its last session is over.
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
controller.quorum.election.timeout.ms=200
controller.quorum.fetch.timeout.ms=500
controller.quorum.election.backoff.max.ms=100
"""


@dataclass
class KafkaServer:
    """A broker that can be stopped and started again: its ports and its data stay."""

    folder: Path
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ("plain", "login", "controller")})
    process: subprocess.Popen[bytes] | None = None

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self.ports['plain']}"

    @property
    def brokers_with_login(self) -> str:
        return f"127.0.0.1:{self.ports['login']}"

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def format(self) -> None:
        properties = PROPERTIES.format(**self.ports, data=self.folder / "data", user=USER, password=PASSWORD)
        (self.folder / "server.properties").write_text(properties)
        (self.folder / "log4j2.properties").write_text(QUIET)
        identity = ["--cluster-id", "tidemark-tests-0000000", "--config", str(self.folder / "server.properties")]
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", *identity], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"Kafka's folder could not be formatted: {done.stdout}{done.stderr}")

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [*self._java(), "kafka.Kafka", str(self.folder / "server.properties")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + START_SECONDS
        while True:
            try:
                self.admin.list_topics(timeout=1)
                return
            except KafkaException:
                if self.process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"Kafka did not start: {(self.folder / 'log').read_text()[-2000:]}") from None

    def kill(self) -> None:
        """As a power cut does it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        name = f"t{uuid4().hex[:12]}"
        self.make_topic(name, partitions, **config)
        return name

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        self._wait_for(name, partitions)

    def drop_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(20)

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(20)
        self._wait_for(name, total)

    def _wait_for(self, name: str, partitions: int) -> None:
        """The answer comes when the controller knows of it; the broker learns it some moments later."""
        wanted = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
        limit = time.monotonic() + 20
        while True:
            try:
                admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})  # the other one remembers for long
                for told in admin.list_offsets(wanted, request_timeout=5).values():
                    told.result(10)
                return
            except KafkaException:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.02)

    def expire(self, name: str, partition: int, before: int) -> None:
        """Lets go of all messages before an offset, as retention does."""
        wanted = TopicPartition(name, partition, before)
        self.admin.delete_records([wanted])[wanted].result(20)

    def _java(self) -> list[str]:
        java = java_home(cache_folder()) / "bin" / "java"
        settings = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        settings += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        # Kafka brings no logger of its own: Spark's writes what goes wrong.
        classes = [
            *map(str, SPARK_JARS.glob("*slf4j*.jar")),
            *map(str, SPARK_JARS.glob("log4j-*.jar")),
            f"{fetched_jars()}/*",
        ]
        return [str(java), *settings, "-cp", os.pathsep.join(classes)]


@contextmanager
def kafka(folder: Path) -> Iterator[KafkaServer]:
    """Starts a broker whose data live in the folder, and stops it at the end."""
    server = KafkaServer(folder)
    server.format()
    try:
        server.start()
        yield server
    finally:
        # Not asked politely: its data goes with the test.
        server.kill()


def fetched_jars() -> Path:
    """The folder of the broker's jars, fetched if they are not there yet. It comes into being complete or not at all."""
    home = cache_folder() / "kafka"
    jars = home / "-".join(KAFKA[1:])
    if jars.exists():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    settings, fresh = home / "ivy-settings.xml", home / f"fetching-{os.getpid()}"
    settings.write_text(IVY_SETTINGS)
    classes = [str(jar) for name in ("ivy-*.jar", "commons-cli-*.jar") for jar in SPARK_JARS.glob(name)]
    command = [str(java_home(cache_folder()) / "bin" / "java"), "-cp", os.pathsep.join(classes), "org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-cache", str(home / "ivy"), "-types", "jar", "bundle", "-dependency", *KAFKA]
    command += ["-retrieve", f"{fresh}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if done.returncode or not any(fresh.glob("*kafka_2.13*.jar")):
        shutil.rmtree(fresh, ignore_errors=True)
        raise RuntimeError(f"Kafka's jars could not be fetched: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    try:
        fresh.rename(jars)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)  # another process was quicker
    return jars
