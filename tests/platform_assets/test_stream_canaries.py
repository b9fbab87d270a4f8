"""Values planted in cursors, keys and credentials, and looked for in everything that a run leaves behind."""

import base64
import hashlib
import json
import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests.services.cap import CapServer
from tests.services.commands import ran
from tests.services.http_proxy import Answered, FaultProxy
from tests.services.kafka import PASSWORD, USER, KafkaServer
from tests.services.postgres import PostgresServer, drop_slots
from tests.services.s3 import S3Server
from tests.services.salesforce_soql import StubField
from tests.services.salesforce_stub import Fault, SalesforceStub, record_id, salesforce_stub
from tests.services.spark_connect import spark_connect

pytestmark = pytest.mark.service

# Records are in these on purpose, with key and cursor; a secret is in no file at all.
RECORDS = {".parquet", ".avro"}
# Packed event logs could not be searched.
SPARK = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}


def canary() -> str:
    return f"canary{secrets.token_hex(8)}"


class SharedSpark:
    """A Spark Connect server for several platforms. What it has noted is searched when it has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.remote = folder, ""
        self.canaries: dict[str, str] = {}

    def found(self) -> list[tuple[str, str]]:
        left = [path for path in self.folder.rglob("*") if path.is_file()]
        assert any("spark-events" in path.parts and path.stat().st_size > 10_000 for path in left)
        sought = {name: text.encode() for name, text in self.canaries.items()}
        read = ((path, path.read_bytes()) for path in left)
        return [(path.name, name) for path, content in read for name, text in sought.items() if text in content]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    spark = SharedSpark(tmp_path_factory.mktemp("spark-connect"))
    events = spark.folder / "spark-events"
    events.mkdir()
    with spark_connect(spark.folder, SPARK | {"spark.eventLog.dir": events.as_uri()}) as spark.remote:
        yield spark
    assert spark.found() == []


class Watched:
    """A platform of one stream, run as a user runs it, and all that it wrote and said."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        settings: Mapping[str, Any],
        login: Mapping[str, str],
        shared: SharedSpark | None = None,
        **stream: Any,
    ) -> None:
        self.folder, self.told, self.shared = folder / "platform", "", shared
        self.events = self.folder / "spark-events"
        self.events.mkdir(parents=True)
        names = {field: f"CANARY_{field.upper()}" for field in login}
        manifest = {
            "connector": "shop", "kind": kind, "settings": dict(settings), "streams": [{"id": "shop.orders", **stream}],
            **({"credentials": {field: f"${{{name}}}" for field, name in names.items()}} if names else {}),
        }  # fmt: skip
        (self.folder / "shop.yaml").write_text(yaml.safe_dump(manifest))
        config = {"store": "state", "connectors": ["shop.yaml"], "tenants": ["t1"]}
        own = {"config": SPARK | {"spark.eventLog.dir": self.events.as_uri()}}
        spark = {"remote": shared.remote} if shared else own
        (self.folder / "tidemark.yaml").write_text(yaml.safe_dump(config | {"spark": spark}))
        self.environment = {key: value for key, value in os.environ.items() if key != "TIDEMARK_CONFIG"}
        self.log_in(**login)

    def log_in(self, **login: str) -> None:
        self.environment |= {f"CANARY_{field.upper()}": value for field, value in login.items()}

    def ingest(self, *options: str) -> int:
        return self.tidemark("stream", "run", "t1/shop", *options)

    def tidemark(self, *arguments: str) -> int:
        done = self._run(*arguments)
        self.told += done.stdout + done.stderr
        return done.returncode

    def state(self) -> str:
        """What `stream show` shows to the eyes of whoever may read the keys: it is not among what was told."""
        return str(json.loads(self._run("stream", "show", "t1/shop/shop.orders", "--json").stdout)["last_cursor"])

    def _run(self, *arguments: str) -> CompletedProcess[str]:
        return ran(*arguments, cwd=self.folder, env=self.environment)

    def found(self, *, values: dict[str, str], secret: dict[str, str]) -> list[tuple[str, str]]:
        """Where the canaries are: values of state and keys outside of records, secrets anywhere."""
        left = [path for path in self.folder.rglob("*") if path.is_file()]
        assert self.shared or any(self.events in path.parents for path in left)
        assert any(path.name == "control.db" for path in left)
        assert any(path.name.endswith(".metadata.json") for path in left)
        every = {name: text.encode() for name, text in secret.items()}
        told = every | {name: text.encode() for name, text in values.items()}
        if self.shared:
            self.shared.canaries |= {
                f"{self.folder.parent.name}: {name}": text for name, text in {**values, **secret}.items()
            }
        found = [("what was told", name) for name, text in told.items() if text in self.told.encode()]
        for path in left:
            sought = every if path.suffix in RECORDS else told
            for content in contents(path):
                found += [(str(path.relative_to(self.folder)), name) for name, text in sought.items() if text in content]
        return found


def contents(path: Path) -> Iterator[bytes]:
    """The file byte by byte, and what a database keeps packed in it."""
    raw = path.read_bytes()
    yield raw
    if not raw.startswith(b"SQLite format 3\0"):
        return
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    yield from unpacked(value)


def unpacked(value: Any) -> Iterator[bytes]:
    if isinstance(value, str | bytes):
        packed = value if isinstance(value, bytes) else value.encode()
        for form in (packed, packed.removeprefix(b"x")):
            try:
                yield zlib.decompress(form)
            except zlib.error:
                continue


def moments(*texts: str) -> dict[str, str]:
    """All ways that a moment may be written somewhere."""
    found = {}
    for text in texts:
        since = round(datetime.fromisoformat(text).timestamp() * 1000)
        found |= {text: text.removesuffix("Z"), f"{text} as text": text.removesuffix("Z").replace("T", " ")}
        found |= {f"{text} as a number": str(since), f"{text} in an address": text.removesuffix("Z").replace(":", "%3A")}
    return found


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def test_nothing_of_a_table_is_found_outside_the_lake(tmp_path: Path, pg: PostgresServer) -> None:
    cursor, later, key, password = (canary() for _ in range(4))
    url = pg.new_database()
    user = f"reader_{secrets.token_hex(4)}"
    pg.execute(
        url,
        "CREATE TABLE orders (id text, position text)",
        f"INSERT INTO orders VALUES ('{key}', '{cursor}')",
        f"CREATE ROLE {user} LOGIN PASSWORD '{password}'",
        f"GRANT SELECT ON orders TO {user}",
    )
    settings = {"url": url.replace("postgres@", "").replace("postgres:@", "")}
    words = {"source": "orders", "key": ["id"], "cursor": "position", "cursor_type": "text"}
    watched = Watched(tmp_path, "sql", settings, {"user": user, "password": password}, **words)
    assert watched.ingest() == 0, watched.told
    pg.execute(url, f"INSERT INTO orders VALUES ('{key}', '{later}')")
    assert watched.ingest("--json") == 0, watched.told
    assert watched.tidemark("stream", "history", "t1/shop/shop.orders") == 0
    assert watched.tidemark("stream", "history", "t1/shop/shop.orders", "--moves") == 0
    # A run that fails in its tasks, and one that is refused: their errors go everywhere.
    broken = "CREATE VIEW orders AS SELECT id, (position::int)::text AS position FROM kept"
    pg.execute(url, "ALTER TABLE orders RENAME TO kept", broken)
    pg.execute(url, f"GRANT SELECT ON orders TO {user}")
    assert watched.ingest("--full") == 1
    watched.log_in(password=password + "wrong")
    assert watched.ingest() == 1
    values = {"cursor": cursor, "later": later, "key": key}
    assert watched.found(values=values, secret={"password": password}) == []


def test_nothing_of_files_is_found_outside_the_lake(tmp_path: Path, s3: S3Server, shared: SharedSpark) -> None:
    key, broken, name = canary(), canary(), canary()
    bucket, client = s3.new_bucket(), s3.client()
    login = {"access_key": s3.access_key, "secret_key": s3.secret_key}
    settings = {"path": f"s3://{bucket}/in", "endpoint": s3.endpoint, "region": s3.region}
    watched = Watched(tmp_path, "files", settings, login, shared, key=["id"])
    watched.environment = {each: text for each, text in watched.environment.items() if not each.startswith("AWS_")}
    content = f"id,item\n{key},pen\n{broken},too,many\n".encode()
    client.put_object(Bucket=bucket, Key=f"in/{name}.csv", Body=content)
    assert watched.ingest() == 0, watched.told
    assert watched.ingest("--json") == 0, watched.told
    digest = hashlib.sha256(content).hexdigest()
    assert digest in watched.state()
    # A file that is damaged is named by its path, which is no value; the others of the state are not.
    client.put_object(Bucket=bucket, Key="in/damaged.parquet", Body=key.encode())
    assert watched.ingest() == 1
    assert "damaged.parquet" in watched.told
    wrong = canary()
    watched.log_in(secret_key=wrong)
    assert watched.ingest() == 1
    values = {"key": key, "broken line": broken, "path": name, "digest": digest}
    assert watched.found(values=values, secret={"secret_key": s3.secret_key, "wrong": wrong}) == []


def test_nothing_of_an_odata_service_is_found_outside_the_lake(
    tmp_path: Path, cap_server: CapServer, shared: SharedSpark
) -> None:
    key, later_key, wrong = 7_203_948_571_333, 7_203_948_571_444, canary()
    first, later = "2019-03-07T04:11:09.283Z", "2019-03-08T05:12:10.394Z"
    put = "INSERT INTO data_Orders (id, item, updated_at) VALUES ({}, '{}', '{}')"
    cap_server.execute("DELETE FROM data_Orders", put.format(key, "pen", first))
    login = {"user": cap_server.user, "password": cap_server.password}
    with FaultProxy(cap_server.url) as proxy:
        settings = {"url": f"{proxy.url}/odata/v4/closed"}
        words = {"source": "Orders", "key": ["id"], "cursor": "updated_at", "safety_window": "PT1H", "deletes": "compare"}
        watched = Watched(tmp_path, "odata", settings, login, shared, **words)
        assert watched.ingest() == 0, watched.told
        cap_server.execute(put.format(later_key, "ink", later))
        assert watched.ingest("--json") == 0, watched.told
        assert watched.state().startswith(later.removesuffix("Z"))
        # Servers put the query and the login into what they say of an error.
        echo = json.dumps({"error": {"message": f"{later} {later_key} {login}"}}).encode()
        proxy.plan(*[Answered(400, echo, {"X-Echo": basic(**login)})] * 8, on="$filter")
        assert watched.ingest() == 1
        watched.log_in(password=wrong)
        assert watched.ingest() == 1
    values = moments(first, later) | {"key": str(key), "later key": str(later_key)}
    secret = {
        "password": login["password"],
        "header": basic(**login),
        "wrong": wrong,
        "wrong header": basic("reader", wrong),
    }
    assert watched.found(values=values, secret=secret) == []


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[SalesforceStub]:
    (tmp_path / "tls").mkdir()
    with salesforce_stub(tmp_path / "tls") as stub:
        yield stub


def test_nothing_of_salesforce_is_found_outside_the_lake(tmp_path: Path, stub: SalesforceStub) -> None:
    user, password, token, wrong = f"{canary()}@example.com", canary(), canary(), canary()
    first, later, number = "2019-03-07T04:11:09.000Z", "2019-03-08T05:12:10.000Z", 62**11 + 987_654_321_987
    stub.make("Account", [StubField("Name", "string")])
    stub.logins[user] = password + token
    stub.add("Account", number, first, Name="pen")
    login = {"user": user, "password": password, "security_token": token}
    words = {"source": "Account", "key": ["Id"], "cursor": "SystemModstamp", "deletes": "compare"}
    settings = {"domain": "acme.my", "ca_file": stub.ca_file}
    watched = Watched(tmp_path, "salesforce", settings, login, **words)
    watched.environment |= {"HTTPS_PROXY": stub.proxy, "https_proxy": stub.proxy}
    assert watched.ingest() == 0, watched.told
    stub.add("Account", number + 1, later, Name="ink")
    assert watched.ingest("--json") == 0, watched.told
    # Salesforce repeats the query in what it says of an error.
    echo = [{"errorCode": "MALFORMED_QUERY", "message": f"{later} {record_id(number)} {stub.session_id} {password}"}]
    stub.faults.append(Fault("/query.*SystemModstamp", 400, echo, times=100))
    assert watched.ingest() == 1
    stub.faults.clear()
    watched.log_in(password=wrong)
    assert watched.ingest() == 1
    values = {each: text.removesuffix(".000") for each, text in moments(first, later).items()}
    values |= {"key": record_id(number), "later key": record_id(number + 1)}
    secret = {"password": password, "token": token, "session": stub.session_id, "user": user, "wrong": wrong}
    assert watched.found(values=values, secret=secret) == []


def test_nothing_of_a_log_of_changes_is_found_outside_the_lake(
    tmp_path: Path, logical_pg: PostgresServer, shared: SharedSpark
) -> None:
    key, later_key, password, wrong = (canary() for _ in range(4))
    url, user = logical_pg.new_database(), f"reader_{secrets.token_hex(4)}"
    logical_pg.execute(
        url,
        "CREATE TABLE orders (id text PRIMARY KEY, price numeric(10, 2))",
        f"INSERT INTO orders VALUES ('{key}', 1)",
        f"CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{password}'",
        f"ALTER TABLE orders OWNER TO {user}",
        f"GRANT CREATE ON DATABASE {url.rpartition('/')[2]} TO {user}",
    )
    settings = {"url": url.replace("postgres@", "").replace("postgres:@", "")}
    login = {"user": user, "password": password}
    watched = Watched(tmp_path, "cdc", settings, login, shared, source="orders", key=["id"])
    assert watched.ingest() == 0, watched.told
    logical_pg.execute(url, f"INSERT INTO orders VALUES ('{later_key}', 2)")
    before = watched.state()
    assert watched.ingest("--json") == 0, watched.told
    after = watched.state()
    # A value that a task cannot read, and a login that is refused.
    logical_pg.execute(url, f"UPDATE orders SET price = 'NaN' WHERE id = '{later_key}'")
    assert watched.ingest() == 1
    watched.log_in(password=wrong)
    assert watched.ingest() == 1
    drop_slots(url)
    padded = [f"{int(high, 16):08X}/{int(low, 16):08X}" for high, low in (lsn_of(before), lsn_of(after))]
    values = {"before": before, "after": after, "lsn before": "/".join(lsn_of(before)), "lsn after": "/".join(lsn_of(after))}
    values |= {"cursor before": padded[0], "cursor after": padded[1], "key": key, "later key": later_key}
    assert watched.found(values=values, secret={"password": password, "wrong": wrong}) == []


def lsn_of(position: str) -> tuple[str, str]:
    high, _, low = position.partition("@")[0].partition("/")
    return high, low


def test_nothing_of_a_topic_is_found_outside_the_lake(tmp_path: Path, broker: KafkaServer, shared: SharedSpark) -> None:
    key, later_key, content, wrong = (canary() for _ in range(4))
    topic = broker.new_topic()
    producer = Producer({"bootstrap.servers": broker.brokers, "log_level": 0})

    def put(id: str, value: bytes | None = None) -> None:
        producer.produce(topic, value or json.dumps({"id": id}).encode(), id.encode())
        assert producer.flush(30) == 0

    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {"user": USER, "password": PASSWORD}
    settings = {"brokers": broker.brokers_with_login, "topic": topic, "config": config}
    watched = Watched(tmp_path, "kafka", settings, login, shared, key=["id"])
    put(key)
    put(key, f"no JSON but {content}".encode())
    assert watched.ingest() == 0, watched.told
    put(later_key)
    assert watched.ingest("--json") == 0, watched.told
    state = watched.state()
    # Messages that are gone before they were read, and a login that is refused.
    put(later_key)
    put(later_key)
    broker.expire(topic, 0, 4)
    assert watched.ingest() == 1
    watched.log_in(password=wrong)
    assert watched.ingest() == 1
    values = {"state": state, "topic": json.loads(state)["topic_id"], "offsets": '{"0":3}', "spaced offsets": '{"0": 3}'}
    values |= {"key": key, "later key": later_key, "broken message": content}
    assert watched.found(values=values, secret={"password": PASSWORD, "wrong": wrong}) == []
