"""Addresses that workers name, at the last moment before something is sent there."""

import asyncio
import json
import socket
from typing import Any

import pytest

from bus.conftest import Connect
from controller.loads.test_coordinator import Faulty, faulty, replication
from corral.bus.client import BusMessage
from corral.bus.messages import NodeReport
from corral.bus.subjects import BACKEND_INSTALL, MODEL_FETCH, node_subject
from corral.controller.backends.peers import BlobPeers
from corral.controller.replicas.wiring import Replication
from corral.store.stores import Stores
from corral.system import SystemClock
from store.serving.test_replicas import IDS, TINY, add_nodes, make_node

__all__ = ["Faulty", "faulty", "replication"]

ELSEWHERE = "192.0.2.7"


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Where names lead; what is not in here is looked up."""
    leads: dict[str, str] = {}
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def answer(host: Any, port: Any, **more: Any) -> Any:
        if host in leads:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (leads[host], port))]
        return await look_up(host, port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", answer)
    return leads


@pytest.mark.parametrize(
    ("told", "stored"),
    [("innocent.example:9000", "10.0.0.1:1"), ("", "127.0.0.1:50051"), ("", "innocent.example:50051")],
    ids=["a-name-in-the-answer", "stored-before", "a-stored-name"],
)
async def test_a_process_is_not_where_only_the_frontend_is(
    replication: Replication, stores: Stores, connect: Connect, names: dict[str, str], told: str, stored: str
) -> None:
    names["innocent.example"] = "127.0.0.1"
    await add_nodes(stores, make_node("a", address=stored, registered_from=ELSEWHERE, key_hash="k"))
    await stores.models.save(TINY, "ann")
    bus = await connect()

    async def install(_message: BusMessage) -> bytes:
        return json.dumps(
            {"success": True, "address": told, "corral": {"backend": "llama-cpp", "protocol": "openai"}}
        ).encode()

    async def fetch(_message: BusMessage) -> bytes:
        return b'{"success": true}'

    await bus.serve(node_subject("a", MODEL_FETCH), fetch, concurrency=1)
    await bus.serve(node_subject("a", BACKEND_INSTALL), install, concurrency=1)
    running = asyncio.create_task(replication.runner.run())
    try:
        settled = await replication.coordinator.load("tiny", within_s=30)
    finally:
        running.cancel()
    assert "an address that cannot be its own" in str(settled.cause)


async def test_no_node_is_sent_to_a_peer_with_a_foreign_address(stores: Stores, names: dict[str, str]) -> None:
    names |= {"innocent.example": "169.254.169.254", "good.example": "10.0.0.3"}
    for node, address in {"bad": "innocent.example:2", "good": "good.example:2", "asks": "10.0.0.4:2"}.items():
        made = make_node(node, http_address=address, key_hash=node, registered_from=ELSEWHERE)
        await add_nodes(stores, made)

    async def report(_node: str) -> NodeReport:
        return NodeReport(node="n", instance="i", epoch=1, sequence=1, backends=[], processes=[], blob_token="opens")

    peers = BlobPeers(nodes=stores.nodes, observed=stores.observed, request_report=report, clock=SystemClock(), ids=IDS)
    found = await peers.among({"bad", "good"}, besides="asks")
    assert [peer.url for peer in found] == ["http://good.example:2"]
