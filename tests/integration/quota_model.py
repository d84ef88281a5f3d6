"""The counters as plain Python: a window of messages by model, two buckets, open reservations.

The same promises as the scripts in quotas/lua, without Redis; the property tests hold one against
the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quotas.limits import MINUTE_MS

IDLE_MS = 3_600_000


@dataclass
class Hold:
    model: str
    tokens: int | None
    requests: int
    at_ms: int
    touched_ms: int
    twin: str
    holders: int = 1


@dataclass
class Bucket:
    level: int = 0
    rate: int = 0
    at_ms: int = 0

    def drain(self, now_ms: int) -> None:
        passed_ms = min(now_ms - self.at_ms, IDLE_MS)
        self.level, self.at_ms = max(0, self.level - passed_ms * self.rate), now_ms

    def wait_ms(self, charge: int) -> int:
        return max(0, -(-(self.level + (charge - self.rate) * MINUTE_MS) // self.rate))


@dataclass
class ModelCounters:
    """`window_ms` and the limits are those of the last call."""

    window_ms: int
    messages: list[tuple[str, int, str]] = field(default_factory=list)
    open: dict[str, Hold] = field(default_factory=dict)
    tokens: Bucket = field(default_factory=Bucket)
    requests: Bucket = field(default_factory=Bucket)

    def in_window(self, model: str, now_ms: int) -> list[int]:
        return sorted(
            at_ms
            for one, at_ms, _ in self.messages
            if one == model and at_ms > now_ms - self.window_ms
        )

    def reserve(
        self,
        now_ms: int,
        run: str,
        twin: str,
        per_minute: int | None,
        rate: int | None,
        wanted: list[tuple[str, int | None, int]],
    ) -> tuple[str, ...]:
        """("held", run, model) or ("refused", limit, wait_ms)."""
        self._drain(now_ms)
        if run in self.open:
            return ("held", run, self.open[run].model)
        for known, hold in self.open.items():
            if twin and hold.twin == twin:
                hold.holders += 1
                hold.touched_ms = now_ms
                return ("held", known, hold.model)
        self.tokens.rate, self.requests.rate = per_minute or 0, rate or 0
        refusals = []
        for model, most, cost in wanted:
            waits = {"messages": self._window_wait_ms(model, most, now_ms)}
            charge = None if per_minute is None else min(cost, per_minute)
            waits["tokens"] = 0 if charge is None else self.tokens.wait_ms(charge)
            waits["requests"] = 0 if rate is None else self.requests.wait_ms(1)
            limit = max(waits, key=lambda name: waits[name])
            if waits[limit] == 0:
                self._hold(
                    now_ms, run, Hold(model, charge, int(rate is not None), now_ms, now_ms, twin)
                )
                return ("held", run, model)
            refusals.append((waits[limit], limit))
            if waits["messages"] == 0:
                break
        wait_ms, limit = min(refusals, key=lambda refusal: refusal[0])
        return ("refused", limit, str(wait_ms))

    def settle(self, now_ms: int, run: str, tokens: int, is_answered: bool) -> bool:
        hold = self.open.pop(run, None)
        if hold is None:
            return False
        self._drain(now_ms)
        if hold.tokens is not None:
            change = (tokens if is_answered else 0) - hold.tokens
            self.tokens.level = max(0, self.tokens.level + change * MINUTE_MS)
        if not is_answered:
            self._take_out(run)
        return True

    def release(self, now_ms: int, run: str, untouched_ms: int | None) -> bool:
        hold = self.open.get(run)
        if hold is None:
            return False
        if untouched_ms is not None:
            if now_ms - hold.touched_ms < untouched_ms:
                return False
        elif hold.holders > 1:
            hold.holders -= 1
            return False
        del self.open[run]
        self._drain(now_ms)
        self.tokens.level = max(0, self.tokens.level - (hold.tokens or 0) * MINUTE_MS)
        self.requests.level = max(0, self.requests.level - hold.requests * MINUTE_MS)
        self._take_out(run)
        return True

    def _drain(self, now_ms: int) -> None:
        self.tokens.drain(now_ms)
        self.requests.drain(now_ms)

    def _window_wait_ms(self, model: str, most: int | None, now_ms: int) -> int:
        used = self.in_window(model, now_ms)
        if most is None or len(used) < most:
            return 0
        return used[len(used) - most] + self.window_ms - now_ms

    def _hold(self, now_ms: int, run: str, hold: Hold) -> None:
        self.open[run] = hold
        if self.window_ms:
            self.messages.append((hold.model, now_ms, run))
        self.tokens.level += (hold.tokens or 0) * MINUTE_MS
        self.requests.level += hold.requests * MINUTE_MS

    def _take_out(self, run: str) -> None:
        self.messages = [one for one in self.messages if one[2] != run]
