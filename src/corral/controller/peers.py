"""Nodes that have a version already, with what opens their blobs. Tokens come from answers and stay in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from corral.bus.messages import BlobPeer, NodeReport
from corral.core.errors import CorralError
from corral.core.nodes import Node, NodeId
from corral.core.observed import ObservedBackend
from corral.core.peers import can_hand_out, find_holders, pick_peers
from corral.system import Clock, Ids

log = structlog.get_logger()

LOOK_AT_MOST_EVERY_S = 2.0
ASK_WITHIN_S = 2.0
"""An order is worth more than its peers."""
NOT_TOLD_FOR_S = 30.0


class Nodes(Protocol):
    async def read_all(self) -> list[Node]: ...


class ObservedBackends(Protocol):
    async def read_backends(self, ids: Iterable[NodeId] | None = None) -> dict[NodeId, list[ObservedBackend]]: ...


class Peers:
    def __init__(
        self,
        *,
        nodes: Nodes,
        observed: ObservedBackends,
        ask_report: Callable[[str], Awaitable[NodeReport]],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._nodes, self._observed, self._ask_report = nodes, observed, ask_report
        self._clock, self._ids = clock, ids
        self._ours: frozenset[str] = frozenset()
        self._able: list[Node] = []
        self._holders: Mapping[str, tuple[Node, ...]] = {}
        self._look_after_s = float("-inf")
        self._looking = asyncio.Lock()
        self._tokens: dict[tuple[str, int], str] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._not_before_s: dict[str, float] = {}

    async def find(self, digest: str | None, *, besides: str) -> list[BlobPeer]:
        """For an install of that version on the node `besides`. Whatever goes wrong, the order goes out without."""
        if not digest or not await self._has_looked():
            return []
        return await self._pick(self._holders.get(digest, ()), besides)

    async def among(self, nodes: Collection[str], *, besides: str) -> list[BlobPeer]:
        """Those of `nodes` that can be asked for blobs, for the node `besides`. Which they have is not known."""
        if not nodes or not await self._has_looked():
            return []
        return await self._pick([node for node in self._able if node.id in nodes], besides)

    async def _pick(self, holders: Sequence[Node], besides: str) -> list[BlobPeer]:
        if besides not in self._ours or not any(node.id != besides for node in holders):
            return []
        chosen = pick_peers(holders, besides=besides, draw=self._ids.draw())
        tokens = await asyncio.gather(*(self._token(node) for node in chosen))
        return [
            BlobPeer(url=f"http://{node.http_address}", token=token)
            for node, token in zip(chosen, tokens, strict=True)
            if token
        ]

    async def _has_looked(self) -> bool:
        try:
            await self._look()
        except CorralError as error:
            log.info("peers.look_failed", error=str(error))
            return False
        return True

    async def _look(self) -> None:
        async with self._looking:
            if self._clock.monotonic_s() < self._look_after_s:
                return
            nodes = await self._nodes.read_all()
            self._able = [node for node in nodes if can_hand_out(node)]
            self._holders = find_holders(self._able, await self._observed.read_backends())
            # A LocalAI worker knows no peers: it is shown nobody's token.
            self._ours = frozenset(node.id for node in nodes if node.key_hash is not None)
            current = {(str(node.id), node.epoch) for node in nodes}
            self._tokens = {key: token for key, token in self._tokens.items() if key in current}
            self._look_after_s = self._clock.monotonic_s() + LOOK_AT_MOST_EVERY_S

    async def _token(self, node: Node) -> str:
        """Asked for once in each life of the node's worker: it keeps its token on disk."""
        key = (str(node.id), node.epoch)
        async with self._asking.setdefault(node.id, asyncio.Lock()):
            if key not in self._tokens and self._clock.monotonic_s() >= self._not_before_s.get(node.id, 0.0):
                try:
                    async with asyncio.timeout(ASK_WITHIN_S):
                        self._tokens[key] = (await self._ask_report(node.id)).blob_token or ""
                except (CorralError, TimeoutError) as error:
                    self._not_before_s[node.id] = self._clock.monotonic_s() + NOT_TOLD_FOR_S
                    log.info("peers.token_not_told", node=node.id, error=str(error) or "no answer in time")
        return self._tokens.get(key, "")
