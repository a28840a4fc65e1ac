"""The nodes of a site as one worker sees them, without a frontend: it is told whom to follow."""

from dataclasses import dataclass, field, replace

from corral.artifacts.digests import Digest
from corral.artifacts.install.installer import Installer
from corral.artifacts.settings import Peer
from corral.artifacts.sources.site import ClaimState, FetchAlone, FollowNode, LeadNow, Turn
from corral.system import SystemClock
from harness.artifacts import Exchange, FakeRegistry, Image, Reply


@dataclass
class OneSite:
    leader: Peer | None = None
    """None: this worker leads."""
    reports: list[str] = field(default_factory=list)
    avoided: dict[str, str] = field(default_factory=dict)

    def claim(self, digest: Digest, state: ClaimState) -> Turn:
        if self.leader is None:
            return LeadNow()
        if "leader" in self.avoided or state.unreachable:
            return FetchAlone()
        return FollowNode("leader", self.leader)

    def moved(self, digest: Digest, offset: int) -> None:
        pass

    def is_lost(self, digest: Digest) -> bool:
        return False

    def ended(self, digest: Digest, *, is_done: bool, has_failed: bool) -> None:
        self.reports.append("done" if is_done else "failed" if has_failed else "released")

    def avoids(self, node: str) -> bool:
        return node in self.avoided

    def avoid(self, node: str, *, reason: str) -> None:
        self.avoided[node] = reason

    def now_s(self) -> float:
        return SystemClock().monotonic_s()

    def pause_s(self, attempt: int) -> float:
        return 0.05


def shared(installer: Installer, site: OneSite) -> Installer:
    return replace(installer, peers=replace(installer.peers, site=site))


def leader_with(server: FakeRegistry, image: Image, layer: bytes | None = None) -> Peer:
    """A node that serves the image's blobs, with `layer` as the bytes of its first layer."""
    blobs = dict(image.blobs)
    if layer is not None:
        blobs[image.layer_digests()[0]] = layer

    def serve(exchange: Exchange) -> None:
        _, found, digest = exchange.path.partition("/artifacts/blobs/")
        if found:
            body = blobs.get(digest)
            if body is None:
                raise Reply(404)
            first = int(exchange.headers["Range"].removeprefix("bytes=").rstrip("-"))
            part = body[first:]
            raise Reply(206, part, {"Content-Range": f"bytes {first}-{len(body) - 1}/{len(body)}"})

    server.hooks.append(serve)
    return Peer(base_url=server.url)
