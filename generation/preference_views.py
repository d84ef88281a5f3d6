"""`/v1/me/preferences`: what a person chose for themselves.

It stands here and not with accounts, which know no models: a default model must be of one's plan.
"""

from __future__ import annotations

from typing import Any

from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import preferences
from accounts.openapi import ERROR_CODES
from accounts.preferences import MODEL_CHARACTERS, THEMES
from accounts.requests import signed_in_user
from accounts.serializers import StrictCharField, StrictSerializer
from generation.catalogue import offer_for
from generation.exceptions import UnknownModel


class StrictChoiceField(serializers.ChoiceField):
    """One of the texts; no other type is taken for one."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str):
            self.fail("invalid_choice", input=str(data)[:40])
        return super().to_internal_value(data)


class PreferencesBody(StrictSerializer):
    """`PATCH /v1/me/preferences`: what is left out stays as it is."""

    theme = StrictChoiceField(choices=THEMES, required=False)
    language = StrictChoiceField(
        choices=sorted(preferences.languages()),
        required=False,
        allow_null=True,
        help_text="null: the browser's.",
    )
    default_model = StrictCharField(
        max_length=MODEL_CHARACTERS,
        required=False,
        allow_null=True,
        help_text="null: the service's.",
    )


class PreferencesAnswer(serializers.Serializer[Any]):
    """What is chosen now."""

    theme = serializers.ChoiceField(choices=THEMES)
    language = serializers.CharField(allow_null=True)
    default_model = serializers.CharField(allow_null=True)


@extend_schema_view(
    get=extend_schema(
        operation_id="getPreferences",
        tags=["me"],
        summary="Read your preferences",
        responses={200: PreferencesAnswer},
    ),
    patch=extend_schema(
        operation_id="changePreferences",
        tags=["me"],
        summary="Change your preferences",
        description="What is left out stays. `default_model` answers where a call names none.",
        request=PreferencesBody,
        responses={200: PreferencesAnswer},
        examples=[OpenApiExample("dark", {"theme": "dark"})],
        extensions={ERROR_CODES: ["unknown_model"]},
    ),
)
@method_decorator(never_cache, name="dispatch")
class PreferencesView(APIView):
    """`/v1/me/preferences`."""

    def get(self, request: Request) -> Response:
        return Response(preferences.preferences_of(signed_in_user(request)).as_dict())

    def patch(self, request: Request) -> Response:
        user = signed_in_user(request)
        body = PreferencesBody(data=request.data)
        body.is_valid(raise_exception=True)
        changes = body.validated_data
        model = changes.get("default_model")
        if model is not None and model not in {one.slug for one in offer_for(user).shown}:
            raise UnknownModel(param="default_model")
        chosen = preferences.change_preferences(user, changes)
        answer = Response(chosen.as_dict())
        if request.auth is None:  # a browser, not a program
            preferences.keep_in_browser(answer, chosen)
        return answer
