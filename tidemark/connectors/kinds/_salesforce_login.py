"""Settings and credentials of a Salesforce connector, as the login that they make."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tidemark.connectors.unknown_settings import unknown_settings
from tidemark.errors import ConfigError

SETTINGS = ("api_limit_share", "ca_file", "domain", "instance", "version")
HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?")
VERSION = "62.0"
# Ways to log in: our names of what each needs.
LOGINS = (
    ("session_id",),
    ("user", "password", "security_token"),
    ("user", "password", "consumer_key", "consumer_secret"),
    ("user", "consumer_key", "private_key"),
    ("consumer_key", "consumer_secret"),
)
LIBRARY_NAMES = {"user": "username", "private_key": "privatekey"}


@dataclass(frozen=True)
class Login:
    """How to log in, in the words of simple-salesforce, and what messages say of it."""

    arguments: Mapping[str, Any] = field(repr=False)
    target: str
    share: float
    ca_file: str | None


def login_of(settings: Mapping[str, Any], credentials: Mapping[str, str]) -> Login:
    """The login that settings and credentials make. ConfigError if they, or the credentials, do not fit together."""
    unknown = sorted(settings.keys() - set(SETTINGS))
    if unknown:
        raise refusal(unknown_settings(unknown, SETTINGS))
    given = frozenset(credentials)
    if given not in {frozenset(each) for each in LOGINS}:
        ways = "; or ".join(", ".join(each) for each in LOGINS)
        raise ConfigError(f"credentials of a salesforce connector: these do not make a login. It takes {ways}.")
    login: dict[str, Any] = {LIBRARY_NAMES.get(name, name): value for name, value in credentials.items()}
    version = str(settings.get("version", VERSION))
    if not re.fullmatch(r"[0-9]{2,3}\.0", version):
        raise refusal('version must be one of the API\'s, such as "62.0"')
    login["version"] = version
    if "private_key" in credentials:
        _refuse_no_key(credentials["private_key"])
    target = _address(settings, login, by_session="session_id" in given, needs_domain="user" not in given)
    return Login(login, target, _share(settings), _ca_file(settings))


def _address(settings: Mapping[str, Any], login: dict[str, Any], *, by_session: bool, needs_domain: bool) -> str:
    """Puts the address into the login, and returns it as messages show it."""
    name, other = ("instance", "domain") if by_session else ("domain", "instance")
    if other in settings:
        raise refusal(f"`{other}` does not go with these credentials. A session_id needs `instance`, a login takes `domain`")
    given = settings.get(name, None if needs_domain else "login")
    plain = str(given).removeprefix("https://").rstrip("/") if isinstance(given, str) else ""
    if not HOST.fullmatch(plain):
        raise refusal(f"`{name}` is missing or no name of a host")
    if by_session:
        login[name] = plain
        return plain
    login[name] = plain.removesuffix(".salesforce.com")
    if needs_domain and login[name] in ("login", "test"):
        raise refusal("`domain` must be your own, such as acme.my: a consumer key alone cannot log in at login or test")
    return f"{login[name]}.salesforce.com"


def _refuse_no_key(text: str) -> None:
    try:
        load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError):
        raise ConfigError("credentials of a salesforce connector: private_key is no private key in PEM.") from None


def _share(settings: Mapping[str, Any]) -> float:
    share = settings.get("api_limit_share", 0.9)
    try:
        number = 0.0 if isinstance(share, bool) else float(share)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number <= 1:
        raise refusal("api_limit_share must be a number above 0 and not above 1")
    return number


def _ca_file(settings: Mapping[str, Any]) -> str | None:
    ca_file = settings.get("ca_file")
    if ca_file is not None and not (isinstance(ca_file, str) and Path(ca_file).is_file()):
        raise refusal("ca_file must be the path of a file with certificates")
    return ca_file


def refusal(what: str) -> ConfigError:
    return ConfigError(f"settings of a salesforce connector: {what}. It has: {', '.join(SETTINGS)}.")
