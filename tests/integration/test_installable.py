"""Manifest, service worker, offline page: what they say, and that they hold nothing of a person."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.staticfiles import finders
from django.test import Client, override_settings

from accounts.preferences import change_preferences
from chatproject import installable
from tests.people import client_of, make_person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_static", "fresh_worker")]


@pytest.fixture
def fresh_worker() -> None:
    for cached in (installable._script, installable._hashed_shell):
        cached.cache_clear()


def worker_of(client: Client) -> tuple[str, dict[str, Any]]:
    body = client.get("/sw.js").content.decode()
    version = re.search(r'^const VERSION = "([0-9a-f]{12})"$', body, re.MULTILINE)
    shell = re.search(r"^const SHELL = (.*)$", body, re.MULTILINE)
    assert version
    assert shell
    return version[1], json.loads(shell[1])


def test_the_manifest_names_the_product_and_icons_that_are_there() -> None:
    with override_settings(PRODUCT_NAME="Campfire"):
        answer = Client().get("/manifest.webmanifest")
    assert answer["Content-Type"] == "application/manifest+json"
    found = answer.json()
    assert (found["name"], found["start_url"], found["scope"]) == ("Campfire", "/", "/")
    assert found["display"] == "standalone"
    kinds = {(icon["sizes"], icon["purpose"]) for icon in found["icons"]}
    assert {("192x192", "any"), ("512x512", "any"), ("512x512", "maskable")} <= kinds
    for icon in found["icons"]:
        assert finders.find(unquote(icon["src"].removeprefix("/static/"))), icon


def test_the_worker_knows_the_shell_and_nothing_else() -> None:
    answer = Client().get("/sw.js")
    assert answer["Content-Type"].startswith("text/javascript")
    assert answer["Cache-Control"] == "no-cache"
    assert "worker-src 'self'" in answer["Content-Security-Policy"]
    _, shell = worker_of(Client())
    assert shell["offline"] == "/offline"
    assert len(shell["files"]) > 30
    assert set(shell["first"]) <= set(shell["files"])
    for path in shell["files"]:
        assert path.startswith("/static/")
        assert not re.search("admin|unfold|swagger", path)
        assert finders.find(unquote(path.removeprefix("/static/"))), path


def test_another_look_is_another_worker_and_another_person_is_not() -> None:
    ada, bob = make_person("ada"), make_person("bob")
    assert worker_of(client_of(ada))[0] == worker_of(client_of(bob))[0] == worker_of(Client())[0]
    change_preferences(ada.user, {"language": "ar"})
    assert worker_of(client_of(ada))[0] != worker_of(client_of(bob))[0]
    change_preferences(bob.user, {"theme": "dark"})
    versions = {worker_of(client)[0] for client in (client_of(ada), client_of(bob), Client())}
    assert len(versions) == 3


def test_the_offline_page_names_nobody() -> None:
    person = make_person("Grace")
    change_preferences(person.user, {"theme": "dark", "language": "ar"})
    page = client_of(person).get("/offline").content.decode()
    assert 'lang="ar" dir="rtl" data-theme="dark"' in page
    for personal in (person.user.name, person.user.email, str(person.user.pk), "csrf"):
        assert personal not in page
    assert not Client().get("/offline").cookies


def test_a_developer_gets_files_as_they_are_edited() -> None:
    with override_settings(DEBUG=True):
        _, shell = worker_of(Client())
    assert shell["files"] == shell["first"] == []
