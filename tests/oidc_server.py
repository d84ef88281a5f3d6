"""A small, real OpenID Connect provider on 127.0.0.1: discovery, code with PKCE, signed tokens.

It checks what a provider checks (redirect address, code, verifier, client secret) and can be told
to misbehave: `provider.token_changes`, `provider.key_of_another`, `provider.broken`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT_ID = "hearth"
CLIENT_SECRET = "a secret of the client"
KID = "key-1"


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class OidcProvider:
    """What it says of whoever comes, and how it behaves."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    token_changes: dict[str, Any] = field(default_factory=dict)
    userinfo_changes: dict[str, Any] = field(default_factory=dict)
    broken: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=_key)
    signing_key: Any = None
    algorithm: str = "RS256"
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def jwks(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": KID, "use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to, with a code."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or form.get("client_secret") != CLIENT_SECRET:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked.get("nonce"),
            **self.claims,
            **self.token_changes,
        }
        key = self.signing_key if self.signing_key is not None else self.key
        signed = jwt.encode(claims, key, self.algorithm, headers={"kid": KID})
        return 200, {"access_token": "at", "token_type": "Bearer", "id_token": signed}

    def userinfo(self) -> dict[str, Any]:
        return {**self.claims, **self.userinfo_changes}


class _Handler(BaseHTTPRequestHandler):
    server: Any

    @property
    def provider(self) -> OidcProvider:
        found: OidcProvider = self.server.provider
        return found

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.provider.asked.append(parts.path)
        if parts.path == f"/{self.provider.broken}" or self.provider.broken == parts.path:
            self._json(500, {"error": "broken"})
        elif parts.path == "/.well-known/openid-configuration":
            self._json(200, self.provider.discovery())
        elif parts.path == "/jwks":
            self._json(200, self.provider.jwks())
        elif parts.path == "/userinfo":
            self._json(200, self.provider.userinfo())
        elif parts.path == "/authorize":
            self.send_response(302)
            self.send_header("Location", self.provider.authorize(dict(parse_qsl(parts.query))))
            self.end_headers()
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        form = {k: v[0] for k, v in parse_qs(self.rfile.read(length).decode()).items()}
        if self.provider.broken == "/token":
            self._json(500, {})
        else:
            self._json(*self.provider.token(form))

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    """A provider that answers while it lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    provider = OidcProvider(f"http://127.0.0.1:{server.server_address[1]}")
    server.provider = provider  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
