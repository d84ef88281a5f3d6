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
from django.utils.translation import get_language

# Each is a grammar of highlight.js; the names that code blocks give them are in
# static/js/models/languages.js, and a test holds the two lists against each other.
HIGHLIGHT_LANGUAGES = (
    *("bash", "c", "cpp", "csharp", "css", "dart", "diff", "dockerfile", "elixir", "go", "graphql"),
    *("haskell", "ini", "java", "javascript", "json", "julia", "kotlin", "latex", "lua"),
    *("makefile", "markdown", "nginx", "perl", "php", "powershell", "protobuf", "python", "r"),
    *("ruby", "rust", "scala", "scss", "sql", "swift", "typescript", "xml", "yaml"),
)
# The browser's build of highlight.js: the modules of the package of that name import CommonJS.
HIGHLIGHT = "@highlightjs/cdn-assets/es/"

# Bare name → file below node_modules. A source map is listed where its module names one: the
# manifest storage refuses a module whose map is missing.
NPM_MODULES = {
    "dompurify": "dompurify/dist/purify.es.mjs",
    "marked": "marked/lib/marked.esm.js",
}
# Loaded when an answer first needs them.
NPM_ON_DEMAND = {
    "katex": "katex/dist/katex.min.js",
    f"{HIGHLIGHT}core.min.js": f"{HIGHLIGHT}core.min.js",
    **{
        f"{HIGHLIGHT}languages/{name}.min.js": f"{HIGHLIGHT}languages/{name}.min.js"
        for name in HIGHLIGHT_LANGUAGES
    },
}
NPM_EXTRA_FILES = (
    "@fontsource/stix-two-math/files/stix-two-math-latin-400-normal.woff2",  # by css/maths.css
    "@mermaid-js/tiny/dist/mermaid.tiny.js",  # a plain script, by templates/diagram.html
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
# The translated words of the page, one module a language; a page imports only its own, by this.
CATALOGUE = "#js/catalogue"
CATALOGUES = "js/catalogues/"
# Ours that import the above, or that nobody needs before a press of a button.
OWN_ON_DEMAND = ("models/highlight.js", "models/tex.js", "views/diagram_view.js")


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
    return (*NPM_MODULES.values(), *NPM_ON_DEMAND.values(), *NPM_EXTRA_FILES)


def own_modules() -> list[str]:
    """Our modules as paths below `static/`, sorted; without the catalogues of words."""
    root = Path(settings.BASE_DIR) / "static"
    paths = sorted(path.relative_to(root).as_posix() for path in (root / "js").rglob("*.js"))
    return [path for path in paths if not path.startswith(CATALOGUES)]


def catalogue_path(language: str) -> str:
    """The module of words, below `static/`."""
    known = dict(settings.LANGUAGES)
    return f"{CATALOGUES}{language if language in known else settings.LANGUAGE_CODE}.js"


def module_addresses(language: str = "en") -> dict[str, str]:
    """Bare name → address, for the import map of a page in this language."""
    addresses = {
        OWN_PREFIX + path.removeprefix("js/"): staticfiles_storage.url(path)
        for path in own_modules()
    }
    for name, path in (NPM_MODULES | NPM_ON_DEMAND).items():
        addresses[name] = staticfiles_storage.url(NPM_PREFIX + path)
    addresses[CATALOGUE] = staticfiles_storage.url(catalogue_path(language))
    return addresses


@lru_cache(maxsize=32)  # one a language
def _cached_addresses(language: str) -> dict[str, str]:
    return module_addresses(language)


def current_addresses() -> dict[str, str]:
    """For the active language; cached in production, where files do not change under a process."""
    language = get_language() or settings.LANGUAGE_CODE
    return module_addresses(language) if settings.DEBUG else _cached_addresses(language)


def on_demand() -> frozenset[str]:
    """The names in the import map that a page does not need at its start."""
    return frozenset(NPM_ON_DEMAND) | {OWN_PREFIX + path for path in OWN_ON_DEMAND}


def import_map() -> str:
    """The import map as JSON that is safe inside a script element."""
    text = json.dumps({"imports": current_addresses()}, separators=(",", ":"))
    return text.replace("<", "\\u003c")
