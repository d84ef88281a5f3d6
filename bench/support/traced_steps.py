"""The steps of an answer that bench/waterfall times, and the functions that take them."""

from __future__ import annotations

from typing import Final

STEPS: Final = (
    ("chatproject.handler:GatewayHandler.__call__", "request in", ""),
    ("chatproject.handler:GatewayHandler._serve", "thread", "answered by Django"),
    ("generation.views:SendView.post", "view", ""),
    ("generation.begin:admit", "", "admitted"),
    ("generation.begin:_save", "transaction", "committed"),
    ("generation.token_log.log:TokenLogSync.open", "", "log opened"),
    ("generation.scheduler.queue:publish_ticket", "queued", "ticket published"),
    ("chatproject.handler:write_stream", "stream begun", ""),
    ("generation.gateway.hub:Hub.attach", "", "watching"),
    ("generation.worker.service:Service.work", "ticket taken", ""),
    ("generation.orchestrator:_claim", "popped", "claimed"),
    ("generation.token_log.flusher:Flusher.open", "", "log taken over"),
    ("generation.orchestrator:build_prompt", "", "prompt built"),
    ("generation.token_log.writer:RunWriter.text", "engine's token", ""),
    ("generation.token_log.log:TokenLog.append_many", "", "flushed"),
    ("generation.token_log.layer:TokenChannelLayer.publish_many", "pushing", ""),
    ("generation.gateway.hub:Hub._on_push", "hub", ""),
    ("generation.gateway.viewer:Viewer._from_inbox", "", "taken"),
)
"""(what to wrap, the step at its beginning, the step at its end)"""

ENGINE: Final = "engine's token"
AFTER_ENGINE: Final = ("flushed", "pushing", "hub", "taken")
"""Reached again and again; what counts is the first time after the token, in this order."""
