"""People are named by their address, whatever its case, and never by somebody else's."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from accounts.models import User

pytestmark = pytest.mark.django_db


def test_case_does_not_matter() -> None:
    ada = User.objects.create_user("Ada@Example.org")

    assert User.objects.get_by_natural_key("aDA@exaMPLE.org") == ada
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create_user("ADA@example.org")


def test_a_dotless_i_is_another_letter() -> None:
    User.objects.create_user("mike@example.org")

    with pytest.raises(User.DoesNotExist):
        User.objects.get_by_natural_key("m\u0131ke@example.org")
