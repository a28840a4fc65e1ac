"""Answers workers that need blobs: which node of the site fetches each of them."""

from collections.abc import Mapping

from corral.bus.node_api import BlobAnswer, BlobClaim, DownloadsReply, DownloadsRequest
from corral.controller.backends.peers import BlobPeers
from corral.core.backends.peers import can_serve_blobs, site_of_node
from corral.core.backends.site_downloads import Alone, Answer, DownloadClaim, Lead, Try, WaitForLeader
from corral.core.nodes.node import Node
from corral.frontend.snapshots import Snapshot
from corral.store.stores import Stores
from corral.system import Clock

READ_NODES_EVERY_S = 1.0


class SiteDownloadAnswers:
    def __init__(self, stores: Stores, peers: BlobPeers, clock: Clock) -> None:
        self._store, self._peers = stores.site_downloads, peers
        self._nodes = Snapshot(stores.nodes.read_all, clock=clock, every_s=READ_NODES_EVERY_S)

    async def answer(self, node: Node, request: DownloadsRequest) -> DownloadsReply:
        nodes = {str(other.id): other for other in await self._nodes.get()}
        serving = {identity for identity, other in nodes.items() if can_serve_blobs(other)}
        claims = {one.digest: _claim(one) for one in request.blobs}
        answers = await self._store.claim(
            site_of_node(node),
            str(node.id),
            list(claims.values()),
            serving=serving,
        )
        return DownloadsReply(
            blobs=[await self._show(digest, one, nodes) for digest, one in zip(claims, answers, strict=True)]
        )

    async def _show(self, digest: str, answer: Answer, nodes: Mapping[str, Node]) -> BlobAnswer:
        if isinstance(answer, Lead):
            return BlobAnswer(digest=digest, leads=True)
        if isinstance(answer, Alone):
            return BlobAnswer(digest=digest, leader_failed=answer.after_failure)
        if isinstance(answer, Try):
            return BlobAnswer(digest=digest, tries=True)
        other = nodes.get(answer.node) if not isinstance(answer, WaitForLeader) else None
        peer = await self._peers.at(other, digest) if other is not None else None
        if isinstance(answer, WaitForLeader) or peer is None:  # its token, or the node itself, is not known here yet
            return BlobAnswer(digest=digest, waits=True)
        return BlobAnswer(digest=digest, node=answer.node, url=peer.url, token=peer.token)


def _claim(one: BlobClaim) -> DownloadClaim:
    return DownloadClaim(
        digest=one.digest,
        bytes_done=one.bytes_done,
        rate_bytes_per_s=one.rate_bytes_per_s,
        leader=one.leader,
        received_bytes_per_s=one.received_bytes_per_s,
        bytes_left=one.bytes_left,
        tried=one.tried,
        unreachable=one.unreachable,
        followed=one.followed,
        is_done=one.is_done,
        has_failed=one.has_failed,
        releases=one.releases,
    )
