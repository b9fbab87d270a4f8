import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.config.environment import BadReference, substituted
from tidemark.errors import ConfigError

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("NAME", "value")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("NESTED", "${NAME}")
    monkeypatch.delenv("MISSING", raising=False)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $NAME", "plain $NAME"),
        ("${NAME}", "value"),
        ("a-${NAME}-${NAME}-b", "a-value-value-b"),
        ("${MISSING:-default}", "default"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NAME:-default}", "value"),
        ("${MISSING:-a:-b}", "a:-b"),
        ("$${NAME}", "${NAME}"),
        ("$$", "$$"),
        ("${NESTED}", "${NAME}"),  # what the environment says is not looked into again
    ],
)
def test_references_are_put_in(text, result):
    assert substituted(text) == result


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A-b}", "${NAME", "${NAME:default}", "${ NAME }"])
def test_a_malformed_reference_says_how_to_write_one(text):
    with pytest.raises(BadReference, match=r"Write \$\{NAME\} or \$\{NAME:-default\}"):
        substituted(text)


@given(st.text())
def test_text_without_a_reference_stays_as_it_is(text):
    if "${" not in text:
        assert substituted(text) == text


def test_every_value_may_come_from_the_environment(load, monkeypatch):
    monkeypatch.setenv("PORT", "587")
    monkeypatch.setenv("YES", "True")
    config = load("""\
        store: ${STORE:-data}/${NAME}
        spark: {config: {spark.x: "${NAME}"}}
        email: {host: h, port: "${PORT}", starttls: "${YES}", from: a@b, to: ["${NAME}@b"]}
        connections:
          shop: {app: postgresql, id: "${PORT}", url: u, copy-workers: "${WORKERS:-5}", include: ["${NAME}.*"]}
    """)
    assert config.store.folder.parts[-2:] == ("data", "value")
    assert config.spark.config == {"spark.x": "value"}
    assert (config.email.port, config.email.starttls, config.email.to) == (587, True, ("value@b",))
    shop = config.connection("shop")
    assert (shop.id, shop.copy_workers, shop.include) == ("587", 5, ("value.*",))


def test_a_missing_variable_names_variable_key_file_and_line(load):
    with pytest.raises(ConfigError) as wrong:
        load("""\
            store: x
            email:
              host: h
              port: ${MISSING}
              from: ${MISSING}
              to: ["${MISSING}"]
              username: u
              password: ${MISSING}
        """)
    words = "the environment variable MISSING is not set. Set it, or write a default: ${MISSING:-default}."
    assert str(wrong.value).split("\n") == [
        f"tidemark.yaml:4: email.port: {words}",
        f"tidemark.yaml:5: email.from: {words}",
        f"tidemark.yaml:6: email.to[0]: {words}",
        f"tidemark.yaml:8: email.password: {words}",
    ]


def test_a_malformed_reference_in_a_url_is_told_when_the_file_is_read(load, shop):
    with pytest.raises(ConfigError, match=r"tidemark\.yaml:6: connections\.shop\.url: '\$\{' is not followed by a name"):
        load(shop.replace("${SHOP_URL}", '"postgresql://ann:${}@db"'))
