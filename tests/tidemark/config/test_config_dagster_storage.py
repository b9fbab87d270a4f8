import pytest

from tidemark.config.dagster_storage import DagsterStorage, dagster_storage
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast

CANARY = "canary-5d20"


def test_the_password_stays_a_reference(load):
    config = load("store: x\ndagster-storage: 'postgresql://dagster:${NEVER_SET}@db:6432/runs'\n")
    storage = dagster_storage(config.dagster_storage)
    assert storage.password_variable == "NEVER_SET"
    assert (storage.user, storage.host, storage.port, storage.database) == ("dagster", "db", 6432, "runs")
    assert str(storage) == "dagster@db:6432/runs"


def test_other_parts_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DB_HOST", "db7")
    storage = dagster_storage("postgresql://${DB_USER:-dagster}:${PASSWORD}@${DB_HOST}/runs")
    assert storage == DagsterStorage(host="db7", port=5432, database="runs", user="dagster", password_variable="PASSWORD")


def test_a_login_without_a_password_needs_no_variable():
    assert dagster_storage("postgresql://dagster@db/runs").password_variable is None


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://dagster:{CANARY}@db/runs",
        f"postgresql://dagster:{CANARY}${{MORE}}@db/runs",
        f"postgresql://dagster:${{NAME:-{CANARY}}}@db/runs",
        f"postgresql://dagster@db/runs?password={CANARY}",
    ],
)
def test_a_password_in_the_file_is_refused_without_being_repeated(load, monkeypatch, url):
    monkeypatch.setenv("MORE", "x")
    with pytest.raises(ConfigError, match=r"tidemark.yaml:2: dagster-storage: the password must be a reference") as refused:
        load(f"store: x\ndagster-storage: '{url}'\n")
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u@h/d",
        "postgresql://h/d",
        "postgresql://u@h",
        "postgresql://u@h:port/d",
        "postgresql://u@/d",
        "runs",
        "${WHOLE}",
    ],
)
def test_what_is_no_postgresql_database_is_refused(load, monkeypatch, url):
    monkeypatch.setenv("WHOLE", "runs")
    with pytest.raises(ConfigError, match=r"dagster-storage: must be postgresql://user:\$\{NAME\}@host:5432/database"):
        load(f"store: x\ndagster-storage: '{url}'\n")


def test_a_malformed_reference_is_named(load):
    with pytest.raises(ConfigError, match=r"tidemark.yaml:2: dagster-storage: .*is not followed by a name"):
        load("store: x\ndagster-storage: 'postgresql://u:${9}@h/d'\n")
