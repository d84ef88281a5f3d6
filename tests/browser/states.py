"""Every state of every page, by name, with what brings it about on the real stack.

A new state is a function under `@state("its name")` in states_thread, states_waits, states_around
or states_pages: it gets a `Scene` and leaves the page in the state; test_states.py then looks at it
in light, dark, on a phone and from right to left, with axe and with the keyboard, and keeps a
screenshot of each in test-results/states/.

    @state("palette open", resizes=False)
    def _(scene: Scene) -> None:
        scene.open()
        scene.page.keyboard.press("Control+k")

`resizes=False`: a change of the window's size would end the state (an open menu closes), so the
phone gets a state of its own, made there. `phone=True`: it exists on phones alone. `walk=False`:
Tab would end it, or there are too many stops to walk.

What is looked at elsewhere, and not written twice:

| What | Where |
| --- | --- |
| sign in, ask, read, sign out; reload in mid-answer; leave and come back | test_journeys.py |
| a second device; a web process killed; drafts; refused stays in the composer | test_journeys.py |
| the shell without scripts; composer keys; scroll; directions; copy; sheet | test_manners.py |
| two devices at once: messages, versions, stop, delete and undo | test_devices.py |
| versions, edits, other models, feedback, continue, 500 messages | test_tree.py |
| rename, delete, undo with the pointer and by thumb; focus at redraws of the list | test_names.py |
| passkeys, second steps, pages without scripts | test_account_pages.py |
| another model answers | test_fallback.py |
| each state: rules, targets, 320 px, Tab; announcements; focus after each action | test_states.py |
| the whole journey by keyboard alone, offline and slow lines on both sizes | test_walks.py |
"""

from __future__ import annotations

from tests.browser import states_around, states_pages, states_thread, states_waits
from tests.browser.state_table import STATES

__all__ = ["STATES", "states_around", "states_pages", "states_thread", "states_waits"]
