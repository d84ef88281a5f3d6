"""Static files from the web process: collected once, hashed, compressed, cached for ever."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from servestatic import ServeStaticASGI

HASHED: Final = r"^.+\.[0-9a-f]{12}\..+$"
"""Names that the manifest storage gives: their content never changes."""

MAX_AGE_S: Final = 60


def with_static_files(app: Any) -> Any:
    """`app`, with STATIC_URL served from STATIC_ROOT; with DEBUG, from the sources."""
    if settings.DEBUG:
        return _Sources(app)
    return ServeStaticASGI(
        app,
        root=str(settings.STATIC_ROOT),
        prefix=settings.STATIC_URL,
        immutable_file_test=HASHED,
        max_age=MAX_AGE_S,
        allow_all_origins=False,
        add_headers_function=_add_headers,
    )


def _add_headers(headers: Any, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"


class _Sources:
    """For developers: files as the finders find them, so that a reload shows what was edited."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._files = ASGIStaticFilesHandler(app)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        is_file = scope["path"].startswith(settings.STATIC_URL)
        await (self._files if is_file else self._app)(scope, receive, send)
