"""The world in which the states are brought about: people, conversations, one page."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.phone import call
from tests.stack import PASSWORD, Person, Stack, directive

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, CDPSession, Page

    from tests.browser.chat_page import ChatPage

SLOTS = 8
"""Of the shared stack's one worker."""

# One process for all of it. Dina has room for everything, Cleo may send once a minute, and the
# crowd takes the slots.
_PREPARE = """
import json
from pathlib import Path
from django.db import transaction
from django.template.loader import render_to_string
from accounts import tokens
from accounts.ids import external_id, new_id
from accounts.models import User
from chatproject import pages
from conversations import services
from quotas.models import Plan, Subscription

plans = {}
for slug, requests in (("states", None), ("states-few", 1)):
    plans[slug] = Plan.objects.create(
        slug=slug, title="States", is_paid=False, concurrent_runs=1000, context_tokens=32768,
        answer_tokens=32000, at_limit="refuse", ttft_deadline_ms=600_000,
        requests_per_minute=requests, messages=requests and 40,
    )
people = {}
for name, plan in (("dina", "states"), ("cleo", "states-few"), ("crowd", "states")):
    user = User.objects.create_user(f"{name}@example.org", PASSWORD, name=name.title())
    Subscription.objects.create(user=user, plan=plans[plan])
    people[name] = {"email": user.email, "token": tokens.create(user, "states")[1]}

def seed(title, talk):
    owner = User.objects.get(email="dina@example.org")
    with transaction.atomic():
        row = services.create_conversation(owner, title=title)
        leaf = None
        for question, answer in talk:
            parts = [{"type": "text", "text": question}]
            asked = services.add_user_message(row, leaf, parts)
            leaf = new_id()
            services.add_reply(
                reply_id=leaf, conversation_id=row.pk, owner_id=owner.pk, parent_id=asked.pk,
                text=answer, token_count=240,
            )
        services.set_active_leaf(row.pk, leaf)
    return external_id("c", row.pk)

seeds = {name: seed(*talk) for name, talk in SEEDS.items()}
broken = render_to_string("500.html", pages.product(None))
print(json.dumps({"people": people, "seeds": seeds, "broken": broken}))
"""

CODE = '''Use a set to remember what was seen; the list keeps the order:

```python
from collections.abc import Hashable, Iterable


def unique[T: Hashable](values: Iterable[T]) -> list[T]:
    """The values without their repetitions, in the order in which they came first."""
    seen: set[T] = set()
    return [value for value in values if not (value in seen or seen.add(value))]  # noqa
```

Call `unique([3, 1, 3])` and you get `[3, 1]`. In the shell:

```sh
python -c "from unique import unique; print(unique([3, 1, 3]))"
```

> Values that cannot be hashed, such as lists, need another way.

1. Try it with your own data.
2. Measure before you optimise; see [the documentation](https://docs.python.org/3/library/stdtypes.html).
'''

TABLE = """Here is how they compare:

| City | Population | Area (km²) | Founded | Known for |
| --- | ---: | ---: | :---: | --- |
| Lisbon | 545,923 | 100.05 | ca. 1200 BC | trams, tiles and *fado* |
| Porto | 231,800 | 41.42 | ca. 275 BC | bridges and port wine |
| Braga | 193,324 | 183.40 | 16 BC | churches, and a very long cell that makes the table wide |

**Lisbon** is the largest. For a short trip:

- Two days in Lisbon
- One day in Porto
  - by train, about three hours
"""

ARABIC = """قوس قزح يظهر عندما تدخل أشعة الشمس قطرات المطر.

1. ينكسر الضوء عند دخوله القطرة.
2. ينعكس على سطحها الداخلي.

```python
print("قوس قزح")
```

وبالإنجليزية: *rainbow*.
"""

MATHS = r"""For a quadratic equation $ax^2 + bx + c = 0$ with $a \ne 0$:

$$
x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
$$

The same, step by step:

$$
\begin{aligned}
ax^2 + bx + c &= 0 \\
x^2 + \frac{b}{a}x &= -\frac{c}{a} \\
\left(x + \frac{b}{2a}\right)^2 &= \frac{b^2 - 4ac}{4a^2}
\end{aligned}
$$

It costs $5 and not $10, and $e^{i\pi} + 1 = 0$ stands in a line of words.
"""

DIAGRAM = """What a message goes through:

```mermaid
flowchart LR
  A[You send] --> B{Room?}
  B -- yes --> C[The model reads]
  B -- no --> D[It waits in line]
  D --> C
  C --> E[The answer appears]
```

Press the button to see it drawn.
"""

SEEDS = {
    "code": (
        "Duplicates in a list",
        [("How do I remove duplicates from a list and keep the order?", CODE)],
    ),
    "maths": ("Quadratic equations", [("How do I solve a quadratic equation?", MATHS)]),
    "diagram": ("The way of a message", [("Draw the way of a message.", DIAGRAM)]),
    "table": ("Cities of Portugal", [("Compare the three largest cities of Portugal.", TABLE)]),
    "arabic": ("قوس قزح", [("كيف يتكون قوس قزح؟", ARABIC)]),
    "long": (
        "A long evening about lighthouses and the people who keep them lit through the winter",
        [
            (f"And what about lighthouse {n}?", f"Lighthouse {n} has **a lamp**.\n\n" * 3)
            for n in range(1, 61)
        ],
    ),
}


@dataclass(frozen=True, slots=True)
class World:
    """Who and what all scenes share: made once, in PostgreSQL."""

    stack: Stack
    people: dict[str, Person]
    seeds: dict[str, str]
    broken_page: str

    @classmethod
    def prepare(cls, stack: Stack) -> World:
        code = f"PASSWORD = {PASSWORD!r}\nSEEDS = {SEEDS!r}\n{_PREPARE}"
        made = json.loads(stack.manage("shell", "--verbosity", "0", "-c", code))
        people = {name: Person(**person) for name, person in made["people"].items()}
        return cls(stack, people, made["seeds"], made["broken"])

    def clear(self, name: str) -> None:
        """Delete what a scene left in a person's list, so that the next one begins like it."""
        url, headers = self.stack.webs[0].url, self.people[name].headers
        listed = call("GET", f"{url}/v1/conversations", headers).json()["items"]
        for item in listed:
            if item["id"] not in self.seeds.values():
                call("DELETE", f"{url}/v1/conversations/{item['id']}", headers)


@dataclass(slots=True)
class Scene:
    """One page of one person, on which a state is brought about."""

    world: World
    chat: ChatPage
    cdp: CDPSession
    cookies: dict[str, list[dict[str, Any]]]
    exit: ExitStack = field(default_factory=ExitStack)
    held: int = 0
    direction: str = "ltr"  # in which the page came

    @property
    def page(self) -> Page:
        return self.chat.page

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    # --- who, where, how --------------------------------------------------------------------------

    def be(self, person: str | None) -> None:
        """Somebody else, or nobody, for the rest of this scene."""
        self.context.clear_cookies()
        if person:
            self.context.add_cookies(self.cookies[person])  # type: ignore[arg-type]

    def open(self, seed: str = "") -> ChatPage:
        return self.chat.open(self.world.seeds[seed] if seed else "")

    def visit(self, path: str) -> None:
        self.page.goto(self.chat.url + path)

    def enter(self, mode: str) -> None:
        """Look at the page in another way; the page itself goes on as it is."""
        small = mode.startswith("phone") or mode == "narrow"
        width, height = (320, 640) if mode == "narrow" else (390, 844) if small else (1280, 800)
        self.page.emulate_media(
            color_scheme="dark" if mode.endswith("dark") else "light",
            forced_colors="active" if mode == "forced" else "none",
        )
        self.page.set_viewport_size({"width": width, "height": height})
        touch = {"enabled": small, "maxTouchPoints": 5 if small else 1}
        self.cdp.send("Emulation.setTouchEmulationEnabled", touch)
        direction = "rtl" if mode.endswith("rtl") else self.direction
        # Two frames: what listens to the size has had its turn, and its layout is done.
        self.page.evaluate(
            """(direction) => {
              document.documentElement.dir = direction;
              const frame = () => new Promise((done) => requestAnimationFrame(done));
              return frame().then(frame);
            }""",
            direction,
        )

    # --- answers ----------------------------------------------------------------------------------

    def hold(self, **script: object) -> str:
        """A directive whose answer stands still (at `hold_after`) until the scene is over."""
        self.held += 1
        name = f"state-{self.held}"
        file = self.world.stack.hold(name)
        self.exit.callback(file.unlink, missing_ok=True)
        return directive(hold=name, **script)

    def ask(self, question: str = "What makes a rainbow?", **script: object) -> None:
        """Ask and wait for the end; the answer is `script`'s."""
        said = script or {"text": RAINBOW}
        self.chat.send(f"{question} {directive(**said)}")
        self.chat.expect_end()

    def streaming(self) -> None:
        """An answer that stands still in its middle."""
        self.open()
        self.chat.send("What makes a rainbow? " + self.hold(text=RAINBOW, hold_after=12))
        self.chat.expect_reply("bends and")


RAINBOW = (
    "Light bends and spreads into its colours when it enters a drop of water. It is thrown "
    "back at the far side of the drop and bends again on its way out."
)
