"""Addresses for the tests of accounts: its own pages, the admin, and API views that do little."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from redis.exceptions import ConnectionError as RedisConnectionError
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.errors import RateLimited
from accounts.models import User
from accounts.serializers import IdField, StrictCharField, StrictIntegerField, StrictSerializer
from chatproject import pages

PRIVATE = "what a person wrote in confidence"


class Inner(StrictSerializer):
    text = StrictCharField(max_length=20)


class Thing(StrictSerializer):
    title = StrictCharField(max_length=2_000_000)
    parent_id = IdField("c", required=False)
    number = StrictIntegerField(required=False)
    parts = Inner(many=True, required=False)


class Things(APIView):
    def get(self, request: Request) -> Response:
        user = request.user
        assert isinstance(user, User)
        return Response({"user": user.external_id})

    def post(self, request: Request) -> Response:
        thing = Thing(data=request.data)
        thing.is_valid(raise_exception=True)
        return Response(thing.data, status=201)


FAILURES: dict[str, Exception] = {
    "bug": RuntimeError(PRIVATE),
    "missing": Http404(PRIVATE),
    "database": OperationalError(PRIVATE),
    "redis": RedisConnectionError(PRIVATE),
    "limit": RateLimited(retry_after_s=7),
    "invalid": serializers.ValidationError({"parts": [{}, {}, {"text": ["Too long."]}]}),
}


class Failing(APIView):
    def get(self, request: Request, how: str) -> Response:
        raise FAILURES[how]


def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse("home")


def broken_page(request: HttpRequest) -> HttpResponse:
    raise RuntimeError(PRIVATE)


urlpatterns: list[Any] = [
    path("", home),
    path("broken", broken_page),
    path("admin/queues/", include("generation.queue_urls")),  # the admin's navigation names it
    path("admin/", admin.site.urls),
    path("accounts/", include("accounts.urls")),
    path("v1/", include("accounts.api_urls")),
    path("v1/things", Things.as_view()),
    path("v1/failing/<str:how>", Failing.as_view()),
    path("v1/broken", broken_page),
]

handler400 = pages.bad_request
handler403 = pages.permission_denied
handler404 = pages.page_not_found
handler500 = pages.server_error
