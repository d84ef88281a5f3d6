"""`manage.py ensure_demo`: a model and a pool for each engine profile of the environment."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils.text import slugify

from generation.engines import EngineProfile, parse_profiles
from generation.engines.profiles import InvalidProfiles
from generation.models import Model, Pool

ANSWER_TOKENS_MAX = 1024
ANSWER_SHARE = 4
"""An answer may take a quarter of the context at most: the rest is for the conversation."""


class Command(BaseCommand):
    """Creates what is missing and changes nothing that is there: administrators own the rows."""

    help = "Create a model and a pool for each profile in ENGINE_PROFILES, where they are missing."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            profiles = parse_profiles(settings.ENGINE_PROFILES)
        except InvalidProfiles as error:
            raise CommandError(str(error)) from None
        for profile in profiles.values():
            self._ensure(profile)

    @transaction.atomic
    def _ensure(self, profile: EngineProfile) -> None:
        try:
            for line in ensure(profile):
                self.stdout.write(line)
        except ValidationError as error:
            problems = "; ".join(error.messages)
            raise CommandError(f"Profile {profile.name!r}: {problems}") from None


def ensure(profile: EngineProfile) -> list[str]:
    """Create the profile's pool and model unless there is a pool of that name; what was made."""
    if Pool.objects.filter(slug=profile.name).exists():
        return []
    made = []
    slug = model_slug(profile)
    model = Model.objects.filter(slug=slug).first()
    if model is None:
        model = _model(slug, profile)
        made.append(f"Created model {slug}")
    pool = Pool(slug=profile.name, model=model, profile=profile.name)
    if profile.silence_s is not None:
        pool.silence_s = profile.silence_s
    pool.full_clean()
    pool.save(force_insert=True)
    return [*made, f"Created pool {pool.slug} for model {slug}"]


def model_slug(profile: EngineProfile) -> str:
    """The profile's model as a slug ("Qwen/Qwen2.5-0.5B" → "qwen-qwen2-5-0-5b"), or its name."""
    text = (profile.model or profile.name).replace("/", "-").replace(".", "-").replace(":", "-")
    return slugify(text)[:64].strip("-") or slugify(profile.name)


def _model(slug: str, profile: EngineProfile) -> Model:
    model = Model(
        slug=slug,
        title=(profile.model or profile.name)[:100],
        context_tokens=profile.context_tokens,
        answer_tokens=max(1, min(ANSWER_TOKENS_MAX, profile.context_tokens // ANSWER_SHARE)),
        is_default=not Model.objects.filter(is_default=True).exists(),
    )
    model.full_clean()
    model.save(force_insert=True)
    return model
