"""The shell and the error pages: policy, import map, and the right shape for each reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.staticfiles import finders
from django.http.response import HttpResponseBase
from django.test import Client

from chatproject import esm
from tests.people import make_person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_static")]


@pytest.fixture
def signed_in() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(make_person().user)
    return client


def policy(response: HttpResponseBase) -> dict[str, list[str]]:
    parts = (part.split() for part in response["Content-Security-Policy"].split(";"))
    return {name: values for name, *values in parts}


def import_map(html: str) -> dict[str, str]:
    found = re.search(r'<script type="importmap" nonce="[^"]+">(.*?)</script>', html)
    assert found
    imports: dict[str, str] = json.loads(found[1])["imports"]
    return imports


def test_nobody_is_sent_to_sign_in() -> None:
    for path in ("/", "/c/c_1"):
        response = Client().get(path)
        assert (response.status_code, response["Location"]) == (
            302,
            f"/accounts/sign-in/?next={path}",
        )


def test_the_policy_is_strict(signed_in: Client) -> None:
    found = policy(signed_in.get("/"))
    nonce = found.pop("script-src")[1]
    assert re.fullmatch(r"'nonce-[A-Za-z0-9+/=]{16,}'", nonce)
    assert found.pop("default-src") == ["'none'"]
    assert found.pop("require-trusted-types-for") == ["'script'"]
    assert found.pop("trusted-types") == ["dompurify", "shell-worker"]
    for name in ("base-uri", "frame-ancestors"):
        assert found.pop(name) == ["'none'"]
    assert set(map(tuple, found.values())) == {("'self'",)}


def test_nothing_is_inline_but_the_import_map_with_its_nonce(signed_in: Client) -> None:
    response = signed_in.get("/")
    html = response.content.decode()
    nonce = policy(response)["script-src"][1].removeprefix("'nonce-").rstrip("'")
    scripts = re.findall(r"<script([^>]*)>([^<]*)", html)
    assert len(scripts) == 2
    assert all(f'nonce="{nonce}"' in attributes for attributes, _ in scripts)
    assert [bool(body) for _, body in scripts] == [True, False]
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
    assert signed_in.get("/").content.decode().count(nonce) == 0, "a nonce is used once"


def test_every_module_of_the_import_map_can_be_served(signed_in: Client) -> None:
    imports = import_map(signed_in.get("/").content.decode())
    assert {"#js/main.js", "#js/models/sse.js", "marked", "dompurify"} <= set(imports)
    for name, url in imports.items():
        assert url.startswith("/static/")
        assert finders.find(unquote(url.removeprefix("/static/"))), name


def test_what_an_answer_may_need_is_named_and_not_preloaded(signed_in: Client) -> None:
    html = signed_in.get("/").content.decode()
    preloaded = set(re.findall(r'<link rel="modulepreload" href="([^"]+)">', html))
    imports = import_map(html)
    later = esm.on_demand()
    assert later < set(imports)
    assert {url for name, url in imports.items() if name not in later} == preloaded


def test_every_language_that_is_coloured_is_served() -> None:
    source = finders.find("js/models/languages.js")
    assert isinstance(source, str)
    table = Path(source).read_text(encoding="utf-8").split("const NAMES = {")[1].split("}")[0]
    assert tuple(re.findall(r"^  (\w+):", table, re.MULTILINE)) == esm.HIGHLIGHT_LANGUAGES


def test_the_frame_of_diagrams_can_reach_nothing(signed_in: Client) -> None:
    response = signed_in.get("/diagram")
    found = policy(response)
    nonce = found.pop("script-src")
    assert re.fullmatch(r"'nonce-[A-Za-z0-9+/=]{16,}'", nonce[0])
    assert found == {
        "default-src": ["'none'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "frame-ancestors": ["'self'"],
        "sandbox": ["allow-scripts"],
    }
    assert response["X-Frame-Options"] == "SAMEORIGIN"
    scripts = re.findall(
        r'<script src="(/static/[^"]+)" nonce="([^"]+)">', response.content.decode()
    )
    assert [f"'nonce-{given}'" for _, given in scripts] == nonce * 2
    for url, _ in scripts:
        assert finders.find(unquote(url.removeprefix("/static/"))), url


def test_every_import_has_a_name_in_the_map() -> None:
    names = set(esm.module_addresses())
    for path in esm.own_modules():
        found = finders.find(path)
        assert isinstance(found, str)
        source = Path(found).read_text(encoding="utf-8")
        wanted = set(re.findall(r'^import .*from "([^"]+)"', source, re.MULTILINE))
        assert wanted <= names, path


def test_only_the_named_files_of_node_modules_are_served() -> None:
    for path in ("npm/marked/package.json", "npm/../package.json", "npm/dompurify/dist/purify.js"):
        assert finders.find(path) is None


def test_a_name_cannot_break_out_of_the_import_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(esm, "current_addresses", lambda: {"x": "</script><script>"})
    assert "<" not in esm.import_map()


def test_what_a_person_is_called_is_escaped() -> None:
    client = Client()
    client.force_login(make_person(name='"><script>alert(1)</script>').user)
    assert "<script>alert" not in client.get("/").content.decode()


def test_missing_pages_speak_the_readers_language(signed_in: Client) -> None:
    page = signed_in.get("/nothing-here")
    assert page.status_code == 404
    assert "There is nothing here" in page.content.decode()
    api = signed_in.get("/v1/nothing-here")
    assert api.status_code == 404
    assert api.json()["error"]["code"] == "not_found"


def test_a_form_without_its_csrf_token_is_refused_in_words() -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.post("/accounts/sign-in/", {"username": "a", "password": "b"})
    assert page.status_code == 403
    assert "This is not open to you" in page.content.decode()


def test_a_fault_is_told_without_its_details(
    signed_in: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(esm, "import_map", broken)
    page = signed_in.get("/")
    assert page.status_code == 500
    text = page.content.decode()
    assert "Something broke on our side" in text
    assert "secret detail" not in text


def test_the_shell_is_never_cached(signed_in: Client) -> None:
    assert "no-store" in signed_in.get("/")["Cache-Control"]


def test_the_shell_only_answers_reads(signed_in: Client) -> None:
    assert signed_in.post("/").status_code == 405
