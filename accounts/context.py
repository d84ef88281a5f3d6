"""Context of every page."""

from __future__ import annotations

from django.http import HttpRequest

from accounts.preferences import theme_of


def look(request: HttpRequest) -> dict[str, object]:
    """`theme`, for `<html data-theme>`: rendered by the server, so that no page flashes."""
    return {"theme": theme_of(request)}
