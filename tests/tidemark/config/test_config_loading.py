import pickle
from pathlib import Path

import pytest

from tidemark.config import Config, Connection, load_config
from tidemark.errors import ConfigError, UnknownConnection

pytestmark = pytest.mark.fast

PROJECT = Path(__file__).parents[3]


def test_the_configuration_of_the_project_is_valid():
    config = load_config(PROJECT / "tidemark.yaml")
    assert config.connection("shop").incremental_extraction
    assert config.store.folder == PROJECT / ".tidemark"
    assert config.control == f"sqlite:///{PROJECT}/.tidemark/control.db"


def test_a_small_file_has_every_default(load, shop, tmp_path):
    config = load(shop)
    assert config.path == tmp_path / "tidemark.yaml"
    assert config.store.url == str(tmp_path / ".tidemark")
    assert (config.store.endpoint, config.store.region) == (None, None)
    assert config.control == f"sqlite:///{tmp_path}/.tidemark/control.db"
    assert (config.spark.master, config.spark.remote, config.spark.config) == ("local[*]", None, {})
    assert (config.lake, config.email, config.dagster_home) == ({}, None, None)


def test_the_parameters_of_the_seed_have_its_names_and_defaults(load, shop):
    connection = load(shop).connection("shop")
    names = {
        "incremental-extraction": False,
        "column-batch-size": 25000,
        "column-chunk-size": 100000,
        "copy-workers": 3,
        "prepone-marker-timestamp": True,
        "prepone-marker-hours": 3,
        "system-schema-name": "SYS",
    }
    assert names.items() <= connection.model_dump(by_alias=True).items()
    assert (connection.include, connection.exclude, connection.schedule) == (("*",), (), None)
    assert connection.max_removed_percent == 30
    assert (connection.name, connection.address) == ("shop", "catalog/shop")


def test_every_setting_is_read(load, monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", "hunter2")
    config = load("""\
        store: {url: s3://bucket/some/prefix/, endpoint: "https://s3.example:8333", region: eu-central-1}
        control: postgresql://ann:secret@db.example/tide
        spark: {remote: "sc://spark.example:15002", config: {spark.sql.shuffle.partitions: 8, spark.ui.enabled: false}}
        lake: {type: rest, uri: "https://rest.example", cache-enabled: false, client.pool: 4}
        dagster-home: ../dagster
        email:
          host: smtp.example
          port: 587
          from: tide@example.com
          to: [ann@example.com, bob@example.com]
          starttls: true
          username: tide
          password: ${SMTP_PASSWORD}
        connections:
          crm:
            app: postgresql
            id: crm.prod-1
            url: postgresql://crm.example/crm
            include: ["public.*", "sales.*"]
            exclude: ["*.tmp_*"]
            schedule: "*/15 6-20 * * MON-FRI"
            incremental-extraction: true
            column-batch-size: 10
            column-chunk-size: 20
            copy-workers: 1
            prepone-marker-timestamp: false
            prepone-marker-hours: 0
            system-schema-name: SYSTEM
            max-removed-percent: 100
    """)
    assert config.store.model_dump() == {
        "url": "s3://bucket/some/prefix",
        "endpoint": "https://s3.example:8333",
        "region": "eu-central-1",
    }
    assert config.store.folder is None
    assert config.control == "postgresql://ann:secret@db.example/tide"
    assert config.spark.remote == "sc://spark.example:15002"
    assert config.spark.config == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false"}
    assert config.lake == {"type": "rest", "uri": "https://rest.example", "cache-enabled": False, "client.pool": 4}
    assert config.dagster_home == config.path.parent.parent / "dagster"
    assert (config.email.sender, config.email.to) == ("tide@example.com", ("ann@example.com", "bob@example.com"))
    assert (config.email.port, config.email.starttls) == (587, True)
    assert config.email.password.get_secret_value() == "hunter2"
    crm = config.connection("crm")
    assert crm.include == ("public.*", "sales.*")
    assert crm.schedule == "*/15 6-20 * * mon-fri"
    assert (crm.column_batch_size, crm.column_chunk_size, crm.copy_workers) == (10, 20, 1)
    assert (crm.prepone_marker_timestamp, crm.prepone_marker_hours) == (False, 0)
    assert crm.resolved_url() == "postgresql://crm.example/crm"


def test_relative_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "etc" / "tide mark"
    folder.mkdir(parents=True)
    (folder / "other.yaml").write_text("""\
store: ../var
control: sqlite:///db/control.db?timeout=5
connections:
  local: {app: postgresql, id: a, url: "sqlite:///shop.db"}
  duck: {app: postgresql, id: b, url: "duckdb:///../shop.duckdb"}
  fixed: {app: postgresql, id: c, url: "sqlite:////data/shop.db"}
  home: {app: postgresql, id: d, url: "sqlite:///~/shop.db"}
""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    config = load_config(Path("etc/tide mark/other.yaml"))
    assert config.store.folder == tmp_path / "etc/var"
    assert config.control == f"sqlite:///{folder}/db/control.db?timeout=5"
    assert config.connection("local").resolved_url() == f"sqlite:///{folder}/shop.db"
    assert config.connection("duck").resolved_url() == f"duckdb:///{tmp_path}/etc/shop.duckdb"
    assert config.connection("fixed").resolved_url() == "sqlite:////data/shop.db"
    assert config.connection("home").resolved_url() == "sqlite:////home/ann/shop.db"


def test_the_file_is_the_one_named_then_that_of_the_environment_then_the_one_here(load, shop, tmp_path, monkeypatch):
    (tmp_path / "named.yaml").write_text("store: named")
    (tmp_path / "environment.yaml").write_text("store: environment")
    assert load("store: here").store.folder == tmp_path / "here"
    monkeypatch.setenv("TIDEMARK_CONFIG", "environment.yaml")
    assert load_config().store.folder == tmp_path / "environment"
    assert load_config(Path("named.yaml")).store.folder == tmp_path / "named"
    monkeypatch.setenv("TIDEMARK_CONFIG", "")
    assert load_config().store.folder == tmp_path / "here"


def test_a_key_with_nothing_after_it_is_as_good_as_none(load):
    config = load("""\
        store: .tidemark
        control:
        email:
        connections:
          # shop: …
    """)
    assert config.connections == {}


def test_connections_may_share_lines_by_an_anchor(load):
    config = load("""\
        store: .tidemark
        connections:
          one: &common
            app: postgresql
            id: "1"
            url: postgresql://one
            copy-workers: 7
          two:
            <<: *common
            id: "2"
          three:
            <<: *common
            id: "3"
            copy-workers: 1
    """)
    assert [each.copy_workers for each in config.connections.values()] == [7, 7, 1]
    assert [each.name for each in config.connections.values()] == ["one", "two", "three"]


def test_what_an_alias_leads_to_twice_is_read_twice(load):
    config = load("store: x\nlake: &shared {<<: {a: 1}, a: 2}\nspark: {config: *shared}\n")
    assert (config.lake, config.spark.config) == ({"a": 2}, {"a": "2"})


def test_an_unknown_connection_names_the_nearest_and_all(load, shop):
    config = load(shop + "  crm: {app: postgresql, id: crm, url: x}\n")
    with pytest.raises(UnknownConnection, match=r"no connection 'shp' .* Did you mean 'shop'\? Connections: shop, crm"):
        config.connection("shp")
    with pytest.raises(UnknownConnection, match=r"no connection 'zzz' in \S+/tidemark.yaml\. Connections: shop, crm"):
        config.connection("zzz")


def test_a_file_without_connections_says_so(load):
    with pytest.raises(UnknownConnection, match="has none yet"):
        load("store: .tidemark").connection("shop")


def test_a_configuration_travels_to_another_process(load, shop):
    config = load(shop)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_connection_can_be_made_without_a_file(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    connection = Connection(name="shop", app="postgresql", id="1", url="sqlite:///shop.db", copy_workers=2)
    assert connection.resolved_url() == f"sqlite:///{tmp_path}/shop.db"
    config = Config(store={"url": "s3://bucket"}, control="postgresql://db", connections={"shop": connection})
    assert config.connection("shop").copy_workers == 2


def test_no_secret_is_shown_by_a_configuration(load):
    config = load("""\
        store: .tidemark
        control: postgresql://ann:hunter2@db/tide
        email: {host: h, from: a@b, to: [a@b], username: u, password: hunter2}
        connections:
          shop: {app: postgresql, id: "1", url: "postgresql://ann:hunter2@db/shop"}
    """)
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config)


def test_the_url_of_a_connection_is_looked_up_when_it_is_used(load, shop, monkeypatch):
    connection = load(shop).connection("shop")
    with pytest.raises(ConfigError) as missing:
        connection.resolved_url()
    assert str(missing.value) == (
        "tidemark.yaml:6: connections.shop.url: the environment variable SHOP_URL is not set. "
        "Set it, or write a default: ${SHOP_URL:-default}."
    )
    monkeypatch.setenv("SHOP_URL", "sqlite:///shop.db")
    assert connection.resolved_url() == f"sqlite:///{Path.cwd()}/shop.db"
    monkeypatch.setenv("SHOP_URL", "  ")
    with pytest.raises(ConfigError, match=r"tidemark\.yaml:6: connections\.shop\.url: the url is empty"):
        connection.resolved_url()
