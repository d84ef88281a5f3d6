"""The page's ES modules without a bundler: npm packages as static files, and one import map.

Every module, ours and npm's, is imported by a bare name. The import map gives each name its address
through the static files storage, so in production the hashed file of the manifest. (Django's own
import aggregation rewrites addresses inside the files and mis-hashes some; bare names need none.)

`django-esm` was looked at: it bundles with esbuild, needs a watcher beside the server and does not
go through the manifest. Only a few files of a few packages are needed, so they are named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import drf_spectacular_sidecar
from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage, Storage

# Bare name → file below node_modules. A source map is listed where its module names one: the
# manifest storage refuses a module whose map is missing.
NPM_MODULES = {
    "dompurify": "dompurify/dist/purify.es.mjs",
    "marked": "marked/lib/marked.esm.js",
}
NPM_EXTRA_FILES = (
    "marked/lib/marked.esm.js.map",
    "@alpinejs/csp/dist/cdn.min.js",  # the admin's, by templates/unfold/layouts/skeleton.html
)
NPM_PREFIX = "npm/"
SWAGGER_UI = Path(drf_spectacular_sidecar.__file__).parent.joinpath(
    "static", "drf_spectacular_sidecar", "swagger-ui-dist"
)
# The stylesheet names its map; the sidecar's other 8 MB (Redoc, maps) are needed by nobody.
SWAGGER_UI_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "swagger-ui.css.map")
# package.json's "imports" gives `#js/models/x.js` to Node too, so tests import by the same names.
OWN_PREFIX = "#js/"


def node_modules() -> Path:
    return Path(settings.BASE_DIR) / "node_modules"


class ListedFiles(BaseFinder):
    """Finds exactly the named files, as `<prefix>/…`; what lies beside them stays private."""

    prefix: str

    def __init__(self, app_names: Any = None, *args: Any, **kwargs: Any) -> None:
        self.storage = FileSystemStorage(location=self.root())
        self.storage.prefix = self.prefix.rstrip("/")  # type: ignore[attr-defined]  # read by collectstatic
        super().__init__(*args, **kwargs)

    def root(self) -> Path:
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        raise NotImplementedError

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        missing = [name for name in self.names() if not (self.root() / name).is_file()]
        if not missing:
            return []
        return [
            Error(
                f"Front-end packages are missing: {', '.join(missing)}",
                hint="Run `make setup`, or `npm ci` beside package.json.",
                id="chatproject.E101",
            )
        ]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        name = path.removeprefix(self.prefix)
        known = path.startswith(self.prefix) and name in self.names()
        if not known or not (self.root() / name).is_file():
            return []  # Django's word for "not here"
        found = str(self.root() / name)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        for name in self.names():
            yield name, self.storage


class NodeModulesFinder(ListedFiles):
    """The npm modules of the page, as `npm/<package>/…`."""

    prefix = NPM_PREFIX

    def root(self) -> Path:
        return node_modules()

    def names(self) -> tuple[str, ...]:
        return npm_files()


class SwaggerUIFinder(ListedFiles):
    """Swagger UI, from drf-spectacular's sidecar, as `swagger-ui/…`."""

    prefix = "swagger-ui/"

    def root(self) -> Path:
        return SWAGGER_UI

    def names(self) -> tuple[str, ...]:
        return SWAGGER_UI_FILES


def npm_files() -> tuple[str, ...]:
    return (*NPM_MODULES.values(), *NPM_EXTRA_FILES)


def own_modules() -> list[str]:
    """Our modules as paths below `static/`, sorted."""
    root = Path(settings.BASE_DIR) / "static"
    return sorted(path.relative_to(root).as_posix() for path in (root / "js").rglob("*.js"))


def module_addresses() -> dict[str, str]:
    """Bare name → address, for the import map."""
    addresses = {
        OWN_PREFIX + path.removeprefix("js/"): staticfiles_storage.url(path)
        for path in own_modules()
    }
    for name, path in NPM_MODULES.items():
        addresses[name] = staticfiles_storage.url(NPM_PREFIX + path)
    return addresses


@lru_cache(maxsize=1)
def _cached_addresses() -> dict[str, str]:
    return module_addresses()


def current_addresses() -> dict[str, str]:
    """Cached in production, where files do not change under a running process."""
    return module_addresses() if settings.DEBUG else _cached_addresses()


def import_map() -> str:
    """The import map as JSON that is safe inside a script element."""
    text = json.dumps({"imports": current_addresses()}, separators=(",", ":"))
    return text.replace("<", "\\u003c")
