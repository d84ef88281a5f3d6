"""The HTML shell of the web UI, and the error pages in the same voice.

The shell holds no data of a conversation: it paints at once, and the modules fetch over `/v1` with
the session cookie. So `/` and `/c/<id>` are one page, and whether a conversation exists is said by
one place, the API.
"""

from __future__ import annotations

from csp.constants import NONCE, NONE, SELF, UNSAFE_INLINE
from csp.decorators import csp, csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from accounts import errors
from accounts.preferences import theme_of_browser

API_PREFIX = "/v1/"


def product(request: HttpRequest) -> dict[str, object]:
    """Context of every page."""
    return {"product_name": settings.PRODUCT_NAME, "sign_up_open": settings.SIGN_UP_OPEN}


# Only DOMPurify may turn text into HTML on the chat page, and what it gives back is sanitised. The
# other policy names the service worker, and refuses every other address. The one frame that it may
# hold is ours, the one that draws diagrams.
CHAT_POLICY = {
    "require-trusted-types-for": ["'script'"],
    "trusted-types": ["dompurify", "shell-worker"],
    "frame-src": [SELF],
}
# The frame runs Mermaid over a model's text. Its origin is opaque even when the page is opened by
# itself (`sandbox`), it may load its own two scripts and nothing else, and only our pages may hold
# it.
# Mermaid writes a style element into each drawing.
DIAGRAM_POLICY: dict[str, list[object]] = {
    "default-src": [NONE],
    "script-src": [NONCE],
    "style-src": [SELF, UNSAFE_INLINE],
    "base-uri": [NONE],
    "form-action": [NONE],
    "frame-ancestors": [SELF],
    "sandbox": ["allow-scripts"],
}


@require_safe
@never_cache
@login_required
@csp_update(CHAT_POLICY)
def shell(request: HttpRequest, c_id: str = "") -> HttpResponse:
    """`/` and `/c/<c_id>`; the id is read from the address by the page itself."""
    context = {"c_id": c_id, "max_message_bytes": settings.MAX_MESSAGE_BYTES}
    return render(request, "chat.html", context)


@require_safe
@never_cache
@xframe_options_sameorigin
@csp(DIAGRAM_POLICY)
def diagram(request: HttpRequest) -> HttpResponse:
    """The frame that draws a diagram: without data, so open to all."""
    return render(request, "diagram.html")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """400, of what Django could not read."""
    return _error(request, errors.InvalidRequest("The request could not be read."))


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403, of what is not open to this person."""
    return _error(request, errors.Forbidden("This is not open to you."))


def page_not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404, of an address that leads nowhere."""
    return _error(request, errors.NotFound("There is nothing at this address."))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403, of a form without its CSRF token or with an old one."""
    return _error(request, errors.Forbidden("The page has been open for too long; load it again."))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answers without the context processors: what broke may be one of them."""
    if request.path.startswith(API_PREFIX):
        body = {"code": "internal_error", "message": "Something broke on our side."}
        return JsonResponse({"error": {**body, "param": None, "retry_after_s": None}}, status=500)
    context = {**product(request), "theme": theme_of_browser(request)}
    return render(None, "500.html", context, status=500)


def _error(request: HttpRequest, error: errors.ApiError) -> HttpResponse:
    """The error in the shape its reader expects: JSON below `/v1/`, else a page."""
    if request.path.startswith(API_PREFIX):
        return JsonResponse(error.as_dict(), status=error.http_status)
    return render(request, f"{error.http_status}.html", status=error.http_status)
