"""What the overview counts as failed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from corral.bus.messages import TrafficReport
from corral.frontend.gateway import traffic as pulses
from corral.frontend.gateway.traffic import FleetPulse
from corral.system import SystemClock
from harness.lane import Answering, Replica, RunningLane

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"


async def break_off(answering: Answering) -> None:
    await answering.start_stream()
    await answering.event({"n": 1})
    answering.die()


async def test_broken_streams_and_refusals_of_ours_are_failures(
    lane: RunningLane, client: httpx.AsyncClient, replica: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "TELL_EVERY_S", 0.05)
    good, bad = await replica("good"), await replica("bad")
    bad.script = break_off
    lane.serve("well", good)
    lane.serve("broken", bad)
    lane.serve("cold")

    async def ask(model: str, **more: Any) -> httpx.Response:
        return await client.post(CHAT, json={"model": model, "messages": [{"role": "user", "content": "hi"}], **more})

    assert (await ask("well")).status_code == 200
    assert "The answer is incomplete" in (await ask("broken", stream=True)).text
    assert (await ask("cold")).json()["error"]["code"] == "model_load_failed"
    assert (await ask("unknown")).status_code == 404
    lane.lane.meters.refusals.child("503", "model_loading").value += 1  # told to come again: no failure

    told: asyncio.Queue[TrafficReport] = asyncio.Queue()
    pulse = FleetPulse(lane.lane.meters, lane.lane.ledger.fold, frontend="one", clock=SystemClock())
    telling = asyncio.ensure_future(pulse.keep_telling(told.put))
    try:
        beat = await asyncio.wait_for(told.get(), timeout=30)
    finally:
        telling.cancel()
    assert (beat.requests, beat.failed) == (3, 2)
    assert {node: share.failed for node, share in beat.nodes.items()} == {"node-good": 0, "node-bad": 1}
    assert 'corral_broken_answers_total{model="broken",node="node-bad"} 1\n' in lane.metrics()
    assert 'corral_broken_answers_total{model="well",node="node-good"} 0\n' in lane.metrics()
