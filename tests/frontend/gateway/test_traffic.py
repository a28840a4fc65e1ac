"""What counts as a failure in the traffic of the overview."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from corral.bus.messages import TrafficReport
from corral.frontend.gateway.traffic import FleetTraffic
from corral.system import SystemClock
from harness.gateway import Answering, Replica, RunningGateway

Start = Callable[..., Coroutine[Any, Any, Replica]]
CHAT = "/v1/chat/completions"


async def break_off(answering: Answering) -> None:
    await answering.start_stream()
    await answering.event({"n": 1})
    answering.die()


async def test_broken_streams_and_own_rejections_are_failures(
    gateway: RunningGateway, client: httpx.AsyncClient, replica: Start
) -> None:
    good, bad = await replica("good"), await replica("bad")
    bad.script = break_off
    gateway.serve("well", good)
    gateway.serve("broken", bad)
    gateway.serve("cold")

    async def ask(model: str, **more: Any) -> httpx.Response:
        return await client.post(CHAT, json={"model": model, "messages": [{"role": "user", "content": "hi"}], **more})

    assert (await ask("well")).status_code == 200
    assert "The answer is incomplete" in (await ask("broken", stream=True)).text
    assert (await ask("cold")).json()["error"]["code"] == "model_load_failed"
    assert (await ask("unknown")).status_code == 404
    gateway.gateway.metrics.rejections.child("503", "model_loading").value += 1  # the client retries: no failure

    published: asyncio.Queue[TrafficReport] = asyncio.Queue()
    traffic = FleetTraffic(
        gateway.gateway.metrics, gateway.gateway.accounting.fold, frontend="one", clock=SystemClock()
    )
    publishing = asyncio.ensure_future(traffic.keep_publishing(published.put, every_s=0.05))
    try:
        beat = await asyncio.wait_for(published.get(), timeout=30)
    finally:
        publishing.cancel()
    assert (beat.requests, beat.failed) == (3, 2)
    assert {node: share.failed for node, share in beat.nodes.items()} == {"node-good": 0, "node-bad": 1}
    assert 'corral_broken_answers_total{model="broken",node="node-bad"} 1\n' in gateway.metrics()
    assert 'corral_broken_answers_total{model="well",node="node-good"} 0\n' in gateway.metrics()
