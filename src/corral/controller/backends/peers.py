"""Finds nodes that already have a version, with the tokens for their blobs. Tokens are kept in memory only."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from corral.bus.messages import BlobPeer, NodeReport
from corral.core.backends.blob_tokens import make_blob_token
from corral.core.backends.peers import can_serve_blobs, find_holders, pick_peers, site_of_node
from corral.core.errors import CorralError
from corral.core.nodes.node import Node
from corral.store.backends.observed import ObservedStore
from corral.store.nodes.nodes import NodeStore
from corral.system import Clock, Ids
from corral.system.resolve_host import check_reach

log = structlog.get_logger()

LOOKUP_AT_MOST_EVERY_S = 2.0
ASK_WITHIN_S = 2.0
"""An install does not wait longer for its peers."""
UNKNOWN_FOR_S = 5.0


@dataclass(frozen=True, slots=True)
class _Holders:
    nodes: tuple[Node, ...]
    sites: Mapping[str, str]
    """Of the nodes that may get tokens: a LocalAI worker has no use for peers."""
    until_s: float


class BlobPeers:
    def __init__(
        self,
        *,
        nodes: NodeStore,
        observed: ObservedStore,
        request_report: Callable[[str], Awaitable[NodeReport]],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._nodes, self._observed, self._request_report = nodes, observed, request_report
        self._clock, self._ids = clock, ids
        self._holders: dict[str, _Holders] = {}
        self._looking = asyncio.Lock()
        self._tokens: dict[tuple[str, int], str] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._not_before_s: dict[str, float] = {}

    async def find(self, digest: str | None, *, besides: str) -> list[BlobPeer]:
        """For an install of that version on the node `besides`. Empty if anything goes wrong."""
        if not digest:
            return []
        try:
            found = await self._find_holders(digest)
        except CorralError as error:
            log.info("peers.lookup_failed", error=str(error))
            return []
        site = found.sites.get(besides)
        return await self._pick(found.nodes, besides, site) if site is not None else []

    async def among(self, nodes: Collection[str], *, besides: str) -> list[BlobPeer]:
        """Those of `nodes` that can serve blobs to the node `besides`. Which blobs they have is unknown."""
        if not nodes:
            return []
        try:
            known = {str(node.id): node for node in await self._nodes.read_all()}
        except CorralError as error:
            log.info("peers.lookup_failed", error=str(error))
            return []
        if besides not in known or not known[besides].speaks_corral:
            return []
        serving = [node for identity, node in known.items() if identity in nodes and can_serve_blobs(node)]
        return await self._pick(serving, besides, site_of_node(known[besides]))

    async def at(self, node: Node, digest: str) -> BlobPeer | None:
        """The node as a peer for this blob only; None if it cannot be one now."""
        if not can_serve_blobs(node) or not await _is_reachable(node):
            return None
        secret = await self._token(node)
        if not secret:
            return None
        token = make_blob_token(secret, digest, now_s=self._clock.now_ms() / 1000)
        return BlobPeer(url=f"http://{node.http_address}", token=token)

    async def _pick(self, holders: Sequence[Node], besides: str, site: str) -> list[BlobPeer]:
        picked = pick_peers(holders, excluding=besides, site=site, draw=self._ids.draw())
        chosen = [*picked.near, *picked.far]
        reachable_flags = await asyncio.gather(*(_is_reachable(node) for node in chosen))
        chosen = [node for node, reachable in zip(chosen, reachable_flags, strict=True) if reachable]
        tokens = await asyncio.gather(*(self._token(node) for node in chosen))
        return [
            BlobPeer(url=f"http://{node.http_address}", token=token, is_far=node in picked.far)
            for node, token in zip(chosen, tokens, strict=True)
            if token
        ]

    async def _find_holders(self, digest: str) -> _Holders:
        known = self._holders.get(digest)
        if known is not None and self._clock.monotonic_s() < known.until_s:
            return known
        async with self._looking:
            now_s = self._clock.monotonic_s()
            self._holders = {key: found for key, found in self._holders.items() if now_s < found.until_s}
            if digest not in self._holders:
                self._holders[digest] = await self._look(digest)
            return self._holders[digest]

    async def _look(self, digest: str) -> _Holders:
        holding = await self._observed.read_holding(digest)
        nodes = await self._nodes.read_all() if holding else []
        found = find_holders(nodes, holding).get(digest, ())
        if nodes:
            current = {(str(node.id), node.epoch) for node in nodes}
            self._tokens = {key: token for key, token in self._tokens.items() if key in current}
        sites = {str(node.id): site_of_node(node) for node in nodes if node.speaks_corral}
        return _Holders(found, sites, self._clock.monotonic_s() + LOOKUP_AT_MOST_EVERY_S)

    async def _token(self, node: Node) -> str:
        """Requested once per worker process, which keeps its token on disk."""
        key = (str(node.id), node.epoch)
        async with self._asking.setdefault(node.id, asyncio.Lock()):
            if key not in self._tokens and self._clock.monotonic_s() >= self._not_before_s.get(node.id, 0.0):
                try:
                    async with asyncio.timeout(ASK_WITHIN_S):
                        self._tokens[key] = (await self._request_report(node.id)).blob_token or ""
                except (CorralError, TimeoutError) as error:
                    self._not_before_s[node.id] = self._clock.monotonic_s() + UNKNOWN_FOR_S
                    log.info("peers.token_unknown", node=node.id, error=str(error) or "no answer in time")
        return self._tokens.get(key, "")


async def _is_reachable(node: Node) -> bool:
    """Whether the address can be the node's own: other nodes send a token there."""
    try:
        await check_reach(node.http_address, source_address=node.registered_from, what=f"file server of {node.name}")
    except CorralError as error:
        log.info("peers.skipped", node=node.id, error=str(error))
        return False
    return True
