import json
import logging
import os
import pickle
import stat
import traceback
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidemark.control import ControlDatabase
from tidemark.control.sealing import Keyring, Place
from tidemark.control.state_keys import KEYS, KEYS_FILE, read_keyring
from tidemark.errors import ConfigError, StateKeyMissing, StateSealBroken

pytestmark = pytest.mark.fast

OLD, NEW = bytes(range(32)), bytes(range(100, 132))
PLACE = Place("stream/t1/sap_s4hana_odata/sap.s4hana.gl_accounts", 7)
CURSOR = "2025-09-30T23:59:59Z"
TEXTS = [CURSOR, "", "a:b,c\n", "s3://bucket/Grüße#sha256=abc", "file-\udcff", "x" * 100_000]


def shown(key: bytes) -> str:
    return b64encode(key).decode()


@pytest.fixture(autouse=True)
def no_keys_of_this_machine(monkeypatch):
    monkeypatch.delenv(KEYS, raising=False)
    monkeypatch.delenv(KEYS_FILE, raising=False)


@pytest.fixture
def ring() -> Keyring:
    return Keyring({"new": NEW, "old": OLD})


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_sealed_value_opens_as_it_was(ring, text):
    assert ring.open(ring.seal(text, PLACE), PLACE) == text


def test_a_sealed_text_names_its_form_and_key_and_shows_nothing_else(ring):
    form, key_id, body = ring.seal(CURSOR, PLACE).split(":")
    assert (form, key_id) == ("v1", "new")
    assert CURSOR not in body
    assert shown(CURSOR.encode()) not in body


def test_the_same_value_is_never_sealed_the_same_way_twice(ring):
    assert len({ring.seal(CURSOR, PLACE) for _ in range(100)}) == 100


def test_every_key_of_the_ring_opens(ring):
    assert ring.open(Keyring({"old": OLD}).seal(CURSOR, PLACE), PLACE) == CURSOR


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"subject": "stream/t2/sap_s4hana_odata/sap.s4hana.gl_accounts"},
        {"subject": "stream/t1/sap/sap.s4hana.gl_accounts"},
        {"subject": "stream/t1/sap_s4hana_odata/sap.s4hana.gl"},
        {"subject": "feed/t1/sap_s4hana_odata/sap.s4hana.gl_accounts"},
        {"version": 8},
    ],
    ids=["tenant", "connector", "stream", "system", "version"],
)
def test_a_value_does_not_open_in_another_place(ring, elsewhere):
    with pytest.raises(StateSealBroken):
        ring.open(ring.seal(CURSOR, PLACE), replace(PLACE, **elsewhere))


def test_ids_that_run_together_are_different_places(ring):
    sealed = ring.seal(CURSOR, Place("stream/ab/c/d", 1))
    for subject in ["stream/a/bc/d", "stream/ab/cd/", 'stream/ab", "c/d/', "stream/ab/c", "feed/ab/c/d"]:
        place = Place(subject, 1)
        with pytest.raises(StateSealBroken):
            ring.open(sealed, place)


def test_a_value_that_was_sealed_before_subjects_had_addresses_still_opens(ring):
    nonce = bytes(12)
    bound = json.dumps(["v1", "old", "t1", "sap_s4hana_odata", "sap.s4hana.gl_accounts", 7]).encode()
    sealed = b64encode(nonce + AESGCM(OLD).encrypt(nonce, CURSOR.encode(), bound)).decode()
    assert ring.open(f"v1:old:{sealed}", PLACE) == CURSOR


def test_every_altered_character_is_noticed(ring):
    sealed = ring.seal(CURSOR, PLACE)
    for position, letter in enumerate(sealed):
        altered = sealed[:position] + ("A" if letter != "A" else "B") + sealed[position + 1 :]
        with pytest.raises((StateSealBroken, StateKeyMissing)):
            ring.open(altered, PLACE)


@pytest.mark.parametrize(
    "text", ["", CURSOR, "v1:new", "v1:new:", "v1:new:AAAA", "v1:new:%%%%", "v1:new:" + "A" * 24, "v2:new:AA"]
)
def test_a_text_that_was_never_sealed_is_broken_and_not_repeated(ring, text):
    with pytest.raises(StateSealBroken) as refused:
        ring.open(text, PLACE)
    assert not text or text not in str(refused.value)


def test_shortened_and_lengthened_texts_are_noticed(ring):
    sealed = ring.seal(CURSOR, PLACE)
    for text in [sealed[:-4], sealed + "AAAA", sealed + "\n", sealed + "=", " " + sealed]:
        with pytest.raises(StateSealBroken):
            ring.open(text, PLACE)


def test_a_key_that_is_not_in_the_ring_is_named(ring):
    with pytest.raises(StateKeyMissing, match=r"'new'.*at hand are: old.*TIDEMARK_STATE_KEYS"):
        Keyring({"old": OLD}).open(ring.seal(CURSOR, PLACE), PLACE)


def test_another_key_under_the_same_id_does_not_open(ring):
    with pytest.raises(StateSealBroken):
        Keyring({"new": OLD}).open(ring.seal(CURSOR, PLACE), PLACE)


def test_the_id_of_a_key_is_sealed_too():
    twins = Keyring({"one": OLD, "two": OLD})
    with pytest.raises(StateSealBroken):
        twins.open(twins.seal(CURSOR, PLACE).replace("v1:one:", "v1:two:"), PLACE)


def test_no_failure_tells_a_value_or_a_key(ring, caplog):
    caplog.set_level(logging.DEBUG)
    sealed = ring.seal(CURSOR, PLACE)
    told = [repr(ring), str(ring), f"{ring!r}"]
    for keys, place in [({"new": OLD}, PLACE), ({"old": OLD}, PLACE), ({"new": NEW}, replace(PLACE, version=8))]:
        with pytest.raises((StateSealBroken, StateKeyMissing)) as failed:
            Keyring(keys).open(sealed, place)
        told += traceback.format_exception(failed.value)
    everything = "\n".join([*told, caplog.text])
    for secret in [CURSOR, sealed.split(":")[2], shown(NEW), shown(OLD), NEW.hex(), OLD.hex(), repr(NEW), repr(OLD)]:
        assert secret not in everything
    assert repr(ring) == "Keyring(new, old)"


def test_a_keyring_stays_in_its_process(ring):
    with pytest.raises(TypeError, match="plain text"):
        pickle.dumps(ring)


def test_keys_come_from_the_environment_newest_first(monkeypatch, tmp_path):
    monkeypatch.setenv(KEYS, f" 2026:{shown(NEW)}, 2025:{shown(OLD)} ,")
    keyring = read_keyring(tmp_path)
    assert keyring.ids == ("2026", "2025")
    assert Keyring({"2026": NEW}).open(keyring.seal(CURSOR, PLACE), PLACE) == CURSOR
    assert list(tmp_path.iterdir()) == []


def test_keys_come_from_a_file_newest_first(monkeypatch, tmp_path):
    monkeypatch.setenv(KEYS_FILE, str(key_file(tmp_path / "keys", f"2026:{shown(NEW)}\n\n2025:{shown(OLD)}\n")))
    assert read_keyring(None).ids == ("2026", "2025")


def key_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_file_of_keys_that_others_may_use_is_refused(monkeypatch, tmp_path, mode):
    monkeypatch.setenv(KEYS_FILE, str(key_file(tmp_path / "keys", f"2026:{shown(NEW)}\n", mode)))
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keyring(None)


def test_a_file_of_keys_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(KEYS_FILE, str(tmp_path / "keys"))
    with pytest.raises(StateKeyMissing, match=r"keys cannot be read \(No such file"):
        read_keyring(tmp_path)
    assert list(tmp_path.iterdir()) == []  # a wrong path must not end with a key that nobody knows of


def test_a_file_without_a_key_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(KEYS_FILE, str(key_file(tmp_path / "keys", "\n")))
    with pytest.raises(StateKeyMissing, match="holds no key"):
        read_keyring(None)


def test_keys_from_two_places_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(KEYS, f"2026:{shown(NEW)}")
    monkeypatch.setenv(KEYS_FILE, str(key_file(tmp_path / "keys", f"2025:{shown(OLD)}\n")))
    with pytest.raises(ConfigError, match="both set"):
        read_keyring(None)


@pytest.mark.parametrize(
    "entry",
    [
        shown(NEW),  # the id is forgotten
        f":{shown(NEW)}",
        f"a key:{shown(NEW)}",
        f"new:{shown(NEW)[:-4]}",
        f"new:{shown(NEW + NEW)}",
        f"new:{shown(NEW)[:-1]}%",
        f"new:{NEW.hex()}",
        "new:hunter2",
    ],
)
def test_an_entry_that_is_no_key_is_refused_by_its_number(monkeypatch, entry):
    monkeypatch.setenv(KEYS, f"old:{shown(OLD)},{entry}")
    with pytest.raises(ConfigError, match="TIDEMARK_STATE_KEYS: entry 2 is not 'id:'") as refused:
        read_keyring(None)
    told = "".join(traceback.format_exception(refused.value))
    assert not any(part in told for part in ("hunter2", shown(NEW)[:20], shown(OLD)[:20], NEW.hex()))


def test_two_keys_of_one_id_are_refused(monkeypatch):
    monkeypatch.setenv(KEYS, f"new:{shown(NEW)},new:{shown(OLD)}")
    with pytest.raises(ConfigError, match="entry 2 has the id of an earlier one"):
        read_keyring(None)


def test_a_keyring_without_a_key_or_with_a_short_one_is_refused():
    with pytest.raises(StateKeyMissing):
        Keyring({})
    with pytest.raises(ConfigError, match="32 bytes") as refused:
        Keyring({"new": b"hunter2"})
    assert "hunter2" not in str(refused.value)


def test_beside_a_sqlite_database_a_key_is_made_once_and_for_its_owner_only(tmp_path):
    before = os.umask(0)  # the mode must not depend on a careful umask
    try:
        sealed = read_keyring(tmp_path / "new").seal(CURSOR, PLACE)
    finally:
        os.umask(before)

    made = tmp_path / "new" / "state.key"
    assert list(made.parent.iterdir()) == [made]
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert read_keyring(made.parent).open(sealed, PLACE) == CURSOR


def test_a_key_file_that_is_there_is_never_overwritten(tmp_path):
    made = key_file(tmp_path / "state.key", "not a key")
    with pytest.raises(ConfigError, match=r"state\.key: entry 1"):
        read_keyring(tmp_path)
    assert made.read_text() == "not a key"


def test_a_made_key_that_others_may_read_by_now_is_refused(tmp_path):
    read_keyring(tmp_path)
    (tmp_path / "state.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keyring(tmp_path)


def test_those_that_make_the_key_at_once_end_with_the_same_one(tmp_path, monkeypatch):
    line = Barrier(8)
    link = os.link

    def together(source: Path, target: Path) -> None:
        line.wait(60)  # every one has found that there is no key yet
        link(source, target)

    monkeypatch.setattr(os, "link", together)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: read_keyring(tmp_path).ids, range(8)))
    assert len(set(ids)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["state.key"]


def test_two_databases_have_keys_of_different_ids(tmp_path):
    assert read_keyring(tmp_path / "a").ids != read_keyring(tmp_path / "b").ids


def test_a_folder_that_cannot_hold_a_key_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateKeyMissing, match=r"state\.key cannot be made .*TIDEMARK_STATE_KEYS"):
        read_keyring(tmp_path / "file")


def test_on_postgresql_without_keys_the_error_says_what_to_set():
    control = ControlDatabase("postgresql://ann@db.example/tide")
    with pytest.raises(StateKeyMissing, match=r"TIDEMARK_STATE_KEYS.*openssl rand.*TIDEMARK_STATE_KEYS_FILE"):
        control.sealed_marks("t1")
