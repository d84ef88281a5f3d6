"""The HTML shell of the web UI, and the error pages in the same voice.

The shell holds no data of a conversation: it paints at once, and the modules fetch over `/v1` with
the session cookie. So `/` and `/c/<id>` are one page, and whether a conversation exists is said by
one place, the API.
"""

from __future__ import annotations

from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts import errors

API_PREFIX = "/v1/"


def product(request: HttpRequest) -> dict[str, object]:
    """Context of every page."""
    return {"product_name": settings.PRODUCT_NAME, "sign_up_open": settings.SIGN_UP_OPEN}


# Only DOMPurify may turn text into HTML on the chat page, and what it gives back is sanitised.
TRUSTED_TYPES = {"require-trusted-types-for": ["'script'"], "trusted-types": ["dompurify"]}


@require_safe
@never_cache
@login_required
@csp_update(TRUSTED_TYPES)
def shell(request: HttpRequest, c_id: str = "") -> HttpResponse:
    """`/` and `/c/<c_id>`; the id is read from the address by the page itself."""
    context = {"c_id": c_id, "max_message_bytes": settings.MAX_MESSAGE_BYTES}
    return render(request, "chat.html", context)


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
    return render(None, "500.html", product(request), status=500)


def _error(request: HttpRequest, error: errors.ApiError) -> HttpResponse:
    """The error in the shape its reader expects: JSON below `/v1/`, else a page."""
    if request.path.startswith(API_PREFIX):
        return JsonResponse(error.as_dict(), status=error.http_status)
    return render(request, f"{error.http_status}.html", status=error.http_status)
