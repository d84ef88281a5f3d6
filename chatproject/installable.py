"""What makes the site an app that can be installed: manifest, service worker, offline page.

The worker keeps the shell only: static files with hashed names, and the offline page. Nothing of a
person is ever in its cache: after a sign-out there is nothing left to read.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.views.decorators.http import require_safe

from accounts.preferences import theme_of
from chatproject import esm

PAPER: Final = "#faf7f3"
"""--paper of the light theme (static/css/tokens.css), which manifests cannot read."""
ICONS: Final = (
    ("icons/app-192.png", "192x192", "image/png", "any"),
    ("icons/app-512.png", "512x512", "image/png", "any"),
    ("icons/app-maskable-192.png", "192x192", "image/png", "maskable"),
    ("icons/app-maskable-512.png", "512x512", "image/png", "maskable"),
    ("icons/mark.svg", "any", "image/svg+xml", "any"),
)
# What the offline page needs. Fetched when the worker is installed; all else only when it is used.
OFFLINE_FILES: Final = (
    *(f"css/{name}.css" for name in ("tokens", "base", "controls", "page", "account", "print")),
    "icons/sprite.svg",
    "icons/mark.svg",
    "worker/offline.js",
)
WORKER: Final = "static/worker/sw.js"


@require_safe
def manifest(request: HttpRequest) -> HttpResponse:
    """`/manifest.webmanifest`. Browsers ask without cookies: its words follow Accept-Language."""
    code = translation.get_language() or "en"
    body = {
        "id": "/",
        "name": settings.PRODUCT_NAME,
        "short_name": settings.PRODUCT_NAME[:12],
        "description": gettext("A chat assistant that many people share."),
        "lang": code,
        "dir": "rtl" if translation.get_language_bidi() else "ltr",
        "start_url": reverse("home"),
        "scope": "/",
        "display": "standalone",
        "background_color": PAPER,
        "theme_color": PAPER,
        "icons": [
            {"src": static(path), "sizes": sizes, "type": kind, "purpose": purpose}
            for path, sizes, kind, purpose in ICONS
        ],
    }
    answer = JsonResponse(body, content_type="application/manifest+json")
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """`/sw.js`: the script, after what it must know. A new version of either is a new worker.

    Theme and language of the offline page belong to the version: who changes them gets another.
    """
    offline_look = f"{translation.get_language()} {theme_of(request)}"
    body = _script(offline_look, *_shell())
    answer = HttpResponse(body, content_type="text/javascript; charset=utf-8")
    answer["Cache-Control"] = "no-cache"
    answer["Service-Worker-Allowed"] = "/"
    return answer


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """`/offline`: what the worker shows where a page cannot be fetched. It names nobody."""
    context = {"product_name": settings.PRODUCT_NAME, "theme": theme_of(request)}
    body = render(None, "offline.html", context)  # None: no context processors
    body["Cache-Control"] = "no-cache"
    return body


def shell_files() -> list[str]:
    """The addresses that the worker may keep: modules, styles, icons. No admin, no API page."""
    root = Path(settings.BASE_DIR) / "static"
    styles = [f"css/{path.name}" for path in sorted((root / "css").glob("*.css"))]
    own = [path for path in styles if not path.startswith("css/admin")]
    files = sorted({*own, *OFFLINE_FILES})
    return [*esm.current_addresses().values(), *(staticfiles_storage.url(path) for path in files)]


def _shell() -> tuple[str, ...]:
    """Under DEBUG nothing but the offline page: a file keeps its name while it is edited."""
    return () if settings.DEBUG else _hashed_shell(translation.get_language() or "en")


@lru_cache(maxsize=32)
def _hashed_shell(language: str) -> tuple[str, ...]:
    """Of the language that is active: a page loads the words of its own alone."""
    return tuple(shell_files())


@lru_cache(maxsize=128)
def _script(offline_look: str, *files: str) -> str:
    source = (Path(settings.BASE_DIR) / WORKER).read_text(encoding="utf-8")
    known: dict[str, Any] = {
        "files": files,
        "first": [staticfiles_storage.url(path) for path in OFFLINE_FILES] if files else [],
        "offline": reverse("offline"),
    }
    text = json.dumps(known)
    digest = hashlib.sha256(f"{offline_look}\n{text}\n{source}".encode()).hexdigest()[:12]
    return f'"use strict"\nconst VERSION = "{digest}"\nconst SHELL = {text}\n{source}'
