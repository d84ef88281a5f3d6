"""Headers of every answer below `/v1/`."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from chatproject.pages import API_PREFIX


class NoStore(MiddlewareMixin):
    """What people wrote stays in no cache, a browser's own on a shared machine among them.

    The gateway writes the same header itself; the schema, which is public, has another.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if request.path.startswith(API_PREFIX):
            response.headers.setdefault("Cache-Control", "no-store")
        return response
