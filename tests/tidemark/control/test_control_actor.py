import getpass
import socket

import pytest

from tidemark.control import actor

pytestmark = pytest.mark.fast


def test_the_actor_is_the_user_at_the_host():
    assert actor() == f"{getpass.getuser()}@{socket.gethostname()}"


def test_a_user_without_a_name_is_unknown(monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert actor().startswith("unknown@")
