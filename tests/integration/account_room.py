"""What the tests of account pages share: addresses, forms, mails, and a mail server that fails."""

from __future__ import annotations

import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django.core import mail
from django.test import Client

from tests.people import PASSWORD

SIGN_IN = "/accounts/sign-in/"
SIGN_UP = "/accounts/sign-up/"
SIGN_OUT = "/accounts/sign-out/"
CHANGE = "/accounts/change-password/"
RESET = "/accounts/reset-password/"
SENT = "/accounts/confirm-email/"
SECOND_STEP = "/accounts/security/authenticate/"
NEW_PASSWORD = "a quite different one"
ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "http:///evil.example/",
    "javascript:alert(1)",
    "https:evil.example",
    " //evil.example/",
    "\t//evil.example/",
    "http://testserver@evil.example/",
    "http://testserver.evil.example/",
]


def sign_in(client: Client, email: str, password: str = PASSWORD, **more: Any) -> Any:
    headers = more.pop("headers", None)
    address = more.pop("address", "192.0.2.1")
    form = {"username": email, "password": password, **more}
    return client.post(SIGN_IN, form, headers=headers, REMOTE_ADDR=address)


def sign_up_form(email: str = "new@example.org", **changes: str) -> dict[str, str]:
    return {"email": email, "name": "New", "password1": PASSWORD, "password2": PASSWORD, **changes}


def is_signed_in(client: Client) -> bool:
    return client.get("/v1/things").status_code == 200


def last_link(index: int = -1) -> str:
    """The path of the link in a mail that was sent."""
    found = re.search(r"^https?://\S+/accounts/\S+$", str(mail.outbox[index].body), re.MULTILINE)
    assert found, mail.outbox[index].body
    return urlsplit(found.group()).path


class _Smtp(socketserver.StreamRequestHandler):
    """Speaks just enough SMTP, and behaves as its server was told to."""

    server: Any

    def handle(self) -> None:
        if self.server.behaviour == "silent":
            self.server.over.wait(60)
            return
        if self.server.behaviour == "closing":
            return
        self._say("220 ready")
        for raw in self.rfile:
            verb = raw[:4].upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._take()
            elif verb == b"QUIT":
                self._say("221 bye")
                return
            refused = verb == b"RCPT" and self.server.behaviour == "refusing"
            self._say("550 no such mailbox" if refused else "250 fine")

    def _take(self) -> None:
        lines = list(iter(self.rfile.readline, b".\r\n"))
        self.server.received.append(b"".join(lines).decode())

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server on 127.0.0.1: `working`, `refusing`, `closing` or `silent`."""

    daemon_threads = True
    behaviours: ClassVar = ("refusing", "closing", "silent")

    def __init__(self, behaviour: str) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.behaviour = behaviour
        self.received: list[str] = []
        self.over = threading.Event()


@contextmanager
def mail_server(behaviour: str, settings: Any) -> Iterator[MailServer]:
    """Mails go there while it lasts."""
    with MailServer(behaviour) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.server_address[1]
        settings.EMAIL_USE_TLS = False
        # Only the silent one is given up; the others answer, on a busy machine not at once.
        settings.EMAIL_TIMEOUT = 0.5 if behaviour == "silent" else 30
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
