"""What an engine is told of a run's owner: a salt for its prefix cache, and whether they pay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts.models import Organisation
from generation.runs import FREE_PRIORITY, PAID_PRIORITY
from quotas.models import Plan, PlanModel, Subscription
from quotas.plans import NO_PLAN, Terms, terms_of, terms_of_plan
from tests.integration.tree_room import ask, claim, empty_queues
from tests.people import make_person
from tests.phone import Phone
from tests.stack import Person, Stack, directive


def make_plan(slug: str, *, paid: bool = False) -> Plan:
    return Plan.objects.create(slug=slug, title=slug, is_paid=paid)


@pytest.mark.django_db
def test_the_terms_are_those_of_the_subscription_else_of_a_default_plan() -> None:
    subscriber, other, staff = (make_person(name).user for name in ("one", "other", "staff"))
    staff.is_staff = True
    Subscription.objects.create(user=subscriber, plan_id="plus")
    seeded: dict[str, Terms] = {plan.slug: terms_of_plan(plan) for plan in Plan.objects.all()}
    assert set(seeded) == {"free", "plus", "pro", "api", "staff"}
    assert terms_of(subscriber) == seeded["plus"]
    assert terms_of(other) == seeded["free"]
    assert terms_of(staff) == seeded["staff"]
    Subscription.objects.create(user=staff, plan_id="pro")
    assert terms_of(staff) == seeded["pro"]
    Plan.objects.filter(is_default=True).update(is_default=False)
    assert terms_of(other) == NO_PLAN
    assert not NO_PLAN.allows("any")


@pytest.mark.django_db
def test_a_plan_without_models_has_all_and_one_with_some_has_those() -> None:
    plan = make_plan("some")
    assert terms_of_plan(plan).allows("any")
    plan.messages = 7
    PlanModel.objects.create(plan=plan, model="small")
    PlanModel.objects.create(plan=plan, model="large", messages=3)
    plan.save()
    user = make_person("one").user
    Subscription.objects.create(user=user, plan=plan)
    terms = terms_of(user)
    assert terms == terms_of_plan(plan)
    assert not terms.allows("any")
    assert (terms.messages_of("small"), terms.messages_of("large")) == (7, 3)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("paid", "priority"), [(True, PAID_PRIORITY), (False, FREE_PRIORITY), (None, FREE_PRIORITY)]
)
def test_a_claim_knows_who_has_paid(paid: bool | None, priority: int) -> None:
    user = make_person("owner").user
    if paid is not None:
        Subscription.objects.create(user=user, plan=make_plan("plan", paid=paid))
    with empty_queues():
        assert claim(ask(user)).priority == priority


@pytest.mark.django_db
def test_the_people_of_one_organisation_share_a_salt_and_nobody_else() -> None:
    def salt(name: str, organisation: Organisation | None) -> str:
        user = make_person(name).user
        user.organisation = organisation
        user.save()
        return claim(ask(user)).cache_salt

    ours, theirs = (Organisation.objects.create(name=name) for name in ("Ours", "Theirs"))
    with empty_queues():
        first, second, third = salt("a", ours), salt("b", ours), salt("c", theirs)
        alone, lonely = salt("d", None), salt("e", None)
        Organisation.objects.filter(id=ours.id).update(cache_salt="their own")
        ours.refresh_from_db()
        assert salt("f", ours) == "their own"
    assert first == second
    assert len({first, third, alone, lonely}) == 4
    assert all((first, third, alone, lonely))


_SUBSCRIBE = """
from accounts.models import User
from quotas.models import Plan, PlanModel, Subscription

plan, _ = Plan.objects.get_or_create(slug="terms", title="Paid", is_paid=True)
Subscription.objects.filter(user=User.objects.get(email="{email}")).update(plan=plan)
"""


@pytest.fixture
def paying(stack: Stack) -> Iterator[Person]:
    ada = stack.people["ada"]
    stack.manage("shell", "--verbosity", "0", "-c", _SUBSCRIBE.format(email=ada.email))
    yield ada
    stack.execute("UPDATE quotas_subscription SET plan_id = 'tests' WHERE plan_id = 'terms'")


async def test_the_engine_is_told_both(stack: Stack, paying: Person) -> None:
    told = {}
    for person in (paying, stack.people["bob"]):
        phone = await Phone(person.headers).send(stack.webs[0].url, directive(tokens=2))
        ((owner,),) = stack.rows("SELECT id FROM accounts_user WHERE email = %s", person.email)
        started = stack.journal(phone.run)[0]
        assert started["cache_salt"] == f"u_{owner.hex}"
        told[person.email] = started["priority"]
    assert list(told.values()) == [PAID_PRIORITY, FREE_PRIORITY]
