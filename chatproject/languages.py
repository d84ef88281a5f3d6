"""In which language whom is spoken to."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin

from chatproject.pages import API_PREFIX


class EnglishApi(MiddlewareMixin):
    """The API speaks English, whatever the browser asks for: programs and their logs read it.

    The page shows words of its own for each code. Put it after what chooses a language.
    """

    def process_request(self, request: HttpRequest) -> None:
        if request.path.startswith(API_PREFIX):
            translation.activate("en")
            request.LANGUAGE_CODE = "en"
