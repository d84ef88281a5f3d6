"""Template tags for the page's modules and stylesheets; see `chatproject/esm.py`."""

from __future__ import annotations

from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from chatproject import esm

register = template.Library()


def _nonce(context: dict[str, Any]) -> str:
    return str(getattr(context.get("request"), "csp_nonce", ""))


@register.simple_tag(takes_context=True)
def import_map(context: dict[str, Any]) -> SafeString:
    """The import map; must stand before the first module of the page."""
    return format_html(
        '<script type="importmap" nonce="{}">{}</script>',
        _nonce(context),
        mark_safe(esm.import_map()),  # noqa: S308  # JSON of our own names, "<" escaped
    )


@register.simple_tag(takes_context=True)
def module(context: dict[str, Any], name: str) -> SafeString:
    """Start module `name`, after telling the browser of every module it will ask for at once.

    Without the preloads each level of imports costs a round trip (300 ms on a bad line).
    """
    addresses = esm.current_addresses()
    later = esm.on_demand()
    preloads = format_html_join(
        "",
        '<link rel="modulepreload" href="{}">',
        ((url,) for known, url in addresses.items() if known not in later),
    )
    script = format_html(
        '<script type="module" src="{}" nonce="{}"></script>', addresses[name], _nonce(context)
    )
    return preloads + script


@register.simple_tag
def stylesheets(*names: str) -> SafeString:
    """A link for each `static/css/<name>.css`, in this order."""
    links = ((static(f"css/{name}.css"),) for name in names)
    return format_html_join("\n  ", '<link rel="stylesheet" href="{}">', links)
