"""Quotas through real processes: many at once, headers, and what does not reset them."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from typing import Any

import httpx
import pytest

from tests.api_schema import check_answer
from tests.phone import PATIENT, Phone, call, get_run, stop
from tests.stack import Person, Stack, directive, wait_for

AT_ONCE = 20
SHORT = directive(tokens=2)
_MAKE = """
import json, sys
from accounts import tokens
from accounts.models import User
from quotas.models import Plan, Subscription

people = {}
for name, limits in LIMITS.items():
    plan, _ = Plan.objects.update_or_create(slug=name, defaults={"title": name.title(),
        "at_limit": "refuse", "context_tokens": 4096, "answer_tokens": 512, **limits})
    user = User.objects.create_user(f"{name}-NUMBER@example.org", "a long enough password")
    Subscription.objects.create(user=user, plan=plan)
    people[name] = {"email": user.email, "token": tokens.create(user, "tests")[1]}
    if name == "few":
        people["reader"] = {"email": user.email,
            "token": tokens.create(user, "reads", scopes=["read"])[1]}
print(json.dumps(people))
"""
LIMITS: dict[str, dict[str, int]] = {
    "one": {"messages": 1},
    "twins": {"messages": 1},
    "few": {"messages": 6, "requests_per_minute": 60, "tokens_per_minute": 6_000},
    "kept": {"messages": 20},
    "stops": {"tokens_per_minute": 6_000},
}


@pytest.fixture(scope="module")
def people(stack: Stack) -> dict[str, Person]:
    script = _MAKE.replace("LIMITS", repr(LIMITS)).replace("NUMBER", uuid.uuid4().hex[:8])
    made = json.loads(stack.manage("shell", "--verbosity", "0", "-c", script))
    return {name: Person(**person) for name, person in made.items()}


def written(stack: Stack, person: Person) -> tuple[int, int]:
    """(runs, messages) of this person."""
    query = """
    SELECT (SELECT count(*) FROM generation_run WHERE owner_id = person.id),
        (SELECT count(*) FROM conversations_message WHERE owner_id = person.id AND role = 'user')
    FROM accounts_user person WHERE person.email = %s
    """
    ((runs, messages),) = stack.rows(query, person.email)
    return int(runs), int(messages)


async def send_all(
    stack: Stack, person: Person, keys: list[str], content: str = SHORT
) -> list[httpx.Response]:
    """Sends at once, through both web processes in turn."""
    async with httpx.AsyncClient(**PATIENT) as client:

        async def one(number: int, key: str) -> httpx.Response:
            url = f"{stack.webs[number % 2].url}/v1/conversations/new/messages"
            headers = {**person.headers, "Idempotency-Key": key}
            return await client.post(url, headers=headers, json={"content": content})

        return list(await asyncio.gather(*(one(n, key) for n, key in enumerate(keys))))


def send(stack: Stack, person: Person, conversation: str = "new", **fields: Any) -> httpx.Response:
    url = f"{stack.webs[0].url}/v1/conversations/{conversation}/messages"
    return call("POST", url, person.headers, {"content": SHORT, **fields})


def usage(stack: Stack, person: Person) -> Any:
    answer = call("GET", f"{stack.webs[1].url}/v1/usage", person.headers)
    assert answer.status_code == 200, answer.text
    check_answer("GET", "/v1/usage", 200, "application/json", answer.content)
    return answer.json()


async def test_one_answer_and_twenty_sends_at_once(stack: Stack, people: dict[str, Person]) -> None:
    person = people["one"]
    answers = await send_all(stack, person, [uuid.uuid4().hex for _ in range(AT_ONCE)])
    assert sorted(answer.status_code for answer in answers) == [202, *[429] * (AT_ONCE - 1)]
    assert written(stack, person) == (1, 1)
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == "1"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        if answer.status_code == 429:
            error = answer.json()["error"]
            assert error["code"] == "quota_exceeded"
            assert answer.headers["Retry-After"] == str(error["retry_after_s"])
            assert 3 * 3600 - 60 < error["retry_after_s"] <= 3 * 3600


async def test_twenty_twins_at_once_are_one_answer(stack: Stack, people: dict[str, Person]) -> None:
    """The quota is for one; a retry is never refused."""
    person, key = people["twins"], uuid.uuid4().hex
    answers = await send_all(stack, person, [key] * AT_ONCE)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert written(stack, person) == (1, 1)
    (again,) = await send_all(stack, person, [key])
    assert again.json()["id"] == answers[0].json()["id"]
    (other,) = await send_all(stack, person, [key], content="something else")
    assert other.status_code == 422
    (fresh,) = await send_all(stack, person, [uuid.uuid4().hex])
    assert fresh.status_code == 429


async def test_headers_are_true_and_fall(stack: Stack, people: dict[str, Person]) -> None:
    person = people["few"]
    phone = await Phone(person.headers).send(stack.webs[0].url, SHORT)
    told = [phone.answer_headers]
    told += [dict(send(stack, person).headers) for _ in range(6)]
    remaining = [int(headers["x-ratelimit-remaining-requests"]) for headers in told]
    assert remaining == [5, 4, 3, 2, 1, 0, 0], "the streamed one, five more, and a refusal"
    for headers in told:
        assert headers["x-ratelimit-limit-requests"] == "6"
        assert re.fullmatch(r"2h59m\d+s|3h0m0s", headers["x-ratelimit-reset-requests"])
        assert headers["x-ratelimit-limit-tokens"] == "6000"
        assert 0 < int(headers["x-ratelimit-remaining-tokens"]) <= 6_000
        assert re.fullmatch(r"\d+s", headers["x-ratelimit-reset-tokens"])
    assert all(int(headers["x-ratelimit-remaining-tokens"]) < 6_000 for headers in told[:-1])
    assert int(told[-1]["retry-after"]) <= 3 * 3600


def test_usage_tells_it_all(stack: Stack, people: dict[str, Person]) -> None:
    person = people["few"]
    told = usage(stack, person)
    assert told["plan"] == {"slug": "few", "title": "Few"}
    (messages,) = [one for one in told["limits"]["messages"] if one["model"] == "sim"]
    assert messages["limit"] == 6
    assert messages["used"] + messages["remaining"] == 6
    assert told["limits"]["requests_per_minute"]["limit"] == 60
    answer = call("GET", f"{stack.webs[0].url}/v1/usage", people["reader"].headers)
    assert answer.status_code == 200, "reading is enough"
    assert answer.headers["x-ratelimit-limit-requests"] == "6"
    assert call("GET", f"{stack.webs[0].url}/v1/usage", {}).status_code == 401
    admin_of_nothing = usage(stack, stack.people["bob"])
    assert admin_of_nothing["plan"]["slug"] == "tests"
    assert admin_of_nothing["limits"]["tokens_per_minute"] is None


def _ended(stack: Stack, person: Person, count: int) -> None:
    query = """SELECT count(*) FROM quotas_usageentry used
               JOIN accounts_user person ON person.id = used.user_id WHERE person.email = %s"""
    wait_for(lambda: stack.rows(query, person.email)[0][0] == count, f"{count} answers")


def test_deleting_and_temporary_chats_reset_nothing(
    stack: Stack, people: dict[str, Person]
) -> None:
    person, url = people["kept"], stack.webs[0].url
    first = send(stack, person).json()["conversation"]
    made = call("POST", f"{url}/v1/conversations", person.headers, {"temporary": True}).json()
    assert send(stack, person, made["id"]).status_code == 202
    _ended(stack, person, 2)
    before = usage(stack, person)
    assert before["used"]["last_30_days"]["total"]["messages"] == 2
    assert before["used"]["window"]["total"]["output_tokens"] == 4
    for conversation in (first, made["id"]):
        path = f"{url}/v1/conversations/{conversation}"
        assert call("DELETE", path, person.headers).status_code == 204
    after = usage(stack, person)
    assert after["used"] == before["used"]
    (messages,) = [one for one in after["limits"]["messages"] if one["model"] == "sim"]
    assert (messages["used"], messages["remaining"]) == (2, 18)


async def test_a_stop_in_mid_answer_is_charged_for_its_prompt(
    stack: Stack, people: dict[str, Person]
) -> None:
    """The engine has said nothing of it, and has read it."""
    person, url = people["stops"], stack.webs[0].url
    phone = Phone(person.headers)
    content = directive(tokens=2_000, tokens_per_s=40)
    task = asyncio.create_task(phone.send(url, content))
    await phone.until(lambda p: len(p.text.split()) >= 5)
    await asyncio.to_thread(stop, url, person.headers, phone.run)
    await task
    used = get_run(url, person.headers, phone.run)["usage"]
    assert used["prompt_tokens"] > 10
    assert used["output_tokens"] >= 5
    wait_for(
        lambda: (
            usage(stack, person)["limits"]["tokens_per_minute"]["used"]
            <= used["prompt_tokens"] + used["output_tokens"]
        ),
        "the reservation to be settled",
    )
