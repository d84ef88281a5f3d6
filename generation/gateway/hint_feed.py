"""The hints of all users who have a socket in this process: one subscription for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from accounts import hints
from generation.gateway.socket_frames import LOOK_AGAIN, hint_frame
from generation.token_log.layer import TokenChannelLayer
from generation.token_log.subscriber import RawSubscriber

OnHint = Callable[[str], None]


class HintFeed:
    """Hands each hint, as the frame a socket sends, to the sockets of its user. Never blocks.

    Whenever hints may have been lost, every socket is told LOOK_AGAIN.
    """

    def __init__(self, layer: TokenChannelLayer) -> None:
        self._layer = layer
        self._listeners: dict[UUID, set[OnHint]] = {}
        self._subscriber: RawSubscriber

    async def start(self) -> None:
        self._subscriber = await self._layer.subscribe_raw(
            None, self._on_payload, on_resubscribed=self._on_resubscribed
        )

    @property
    def deaf_since_s(self) -> float | None:
        """See RawSubscriber."""
        return self._subscriber.deaf_since_s

    async def aclose(self) -> None:
        await self._subscriber.aclose()

    def listen(self, user_id: UUID, on_hint: OnHint) -> asyncio.Event:
        """From now on; the event is set while Redis has confirmed it. Who listens must leave."""
        self._listeners.setdefault(user_id, set()).add(on_hint)
        return self._subscriber.add(hints.channel_of(user_id))

    def leave(self, user_id: UUID, on_hint: OnHint) -> None:
        there = self._listeners.get(user_id)
        if there is None:
            return
        there.discard(on_hint)
        if not there:
            del self._listeners[user_id]
            self._subscriber.remove(hints.channel_of(user_id))

    def _on_payload(self, payload: bytes) -> None:
        user_id, data = hints.decode(payload)
        frame = hint_frame(data)
        for on_hint in self._listeners.get(user_id, ()):
            on_hint(frame)

    def _on_resubscribed(self) -> None:
        for there in self._listeners.values():
            for on_hint in there:
                on_hint(LOOK_AGAIN)
