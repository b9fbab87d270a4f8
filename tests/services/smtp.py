"""A mail server in this process, which keeps what it is sent."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.services.ports import free_port


@dataclass
class MailServer:
    port: int
    raw: list[bytes] = field(default_factory=list)
    logins: list[LoginPassword] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(each, policy=policy.default) for each in self.raw]  # type: ignore[misc]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.raw.append(envelope.content)
        return "250 taken"

    def accept(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: LoginPassword) -> AuthResult:
        self.logins.append(login)
        return AuthResult(success=True)


@contextmanager
def smtp(tls: ssl.SSLContext | None = None) -> Iterator[MailServer]:
    """A server on a free port. With TLS it takes mail only from those who log in, encrypted."""
    server = MailServer(free_port())
    strict = {"tls_context": tls, "require_starttls": True, "auth_required": True, "authenticator": server.accept}
    controller = Controller(server, hostname="127.0.0.1", port=server.port, **(strict if tls else {}))
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
