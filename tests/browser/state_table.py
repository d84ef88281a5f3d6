"""The table of states, and how each of them is looked at: see states.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.browser.state_world import Scene

DESKTOP_MODES = ("light", "dark", "phone", "rtl", "narrow")
FIXED_MODES = ("light", "dark", "rtl")
PHONE_MODES = ("phone", "phone-dark", "phone-rtl")
ARABIC_MODES = ("light", "dark", "phone", "narrow")

Make = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class State:
    """A name, what brings it about, and how it is looked at."""

    name: str
    make: Make
    modes: tuple[str, ...] = DESKTOP_MODES
    walk: bool = True
    person: str | None = "dina"
    forced: bool = False

    @property
    def file(self) -> str:
        return self.name.replace(" ", "-").replace(",", "").replace("/", "-")


STATES: list[State] = []


def state(
    name: str,
    *,
    resizes: bool = True,
    phone: bool = False,
    walk: bool = True,
    person: str | None = "dina",
    forced: bool = False,
    modes: tuple[str, ...] = DESKTOP_MODES,
) -> Callable[[Make], Make]:
    """Adds a state to the table. `forced`: looked at in forced colours, too."""

    def add(make: Make) -> Make:
        if not phone:
            ways = modes if resizes else FIXED_MODES
            STATES.append(State(name, make, ways, walk, person, forced))
        if phone or not resizes:
            named = name if phone else f"{name}, phone"
            STATES.append(State(named, make, PHONE_MODES, walk, person))
        return make

    return add
