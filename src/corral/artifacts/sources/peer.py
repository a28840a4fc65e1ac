"""Another worker as a source of blobs. Its bytes are verified by digest like all others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import Blob, BlobSource, BlobStream
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.digests import Digest
from corral.artifacts.errors import SourceRejected, SourceUnavailable
from corral.artifacts.net.client import Outbound
from corral.artifacts.settings import NetworkPolicy, Peer
from corral.artifacts.sources.site import ANSWER_S, BLOB_PATH, SharedDownloads, Site

SLOW_BYTES_PER_S = 128 * 1024
"""A peer that sends less is left for the next one, or for the source."""

# Where fleets live. Link-local is not among them: there are metadata services, and no workers.
_FLEET_NETWORKS = frozenset(
    ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)


@dataclass(frozen=True, slots=True)
class PeerSource:
    """A peer is tried once, without retries, because the registry has the bytes as well."""

    http: HttpSource

    @property
    def label(self) -> str:
        return self.http.label

    @contextmanager
    def open(self, offset: int, cancel: CancelToken) -> Iterator[BlobStream]:
        try:
            with self.http.open(offset, cancel) as stream:
                yield stream
        except SourceUnavailable as error:
            raise SourceRejected(str(error), status=503) from error


@dataclass(frozen=True, slots=True)
class PeerDownloads:
    outbound: Outbound
    peers: tuple[Peer, ...]
    site: Site | None = None

    def source(self, peer: Peer, digest: Digest) -> BlobSource:
        headers = {"Authorization": f"Bearer {peer.token}"} if peer.token else {}
        url = f"{peer.base_url.rstrip('/')}{BLOB_PATH}{digest}"
        return PeerSource(HttpSource(outbound=self.outbound, url=url, headers=lambda: headers))

    def before(self, blob: Blob) -> Blob:
        """The blob with peers tried first, and fetched together with the other nodes of the site. Without a digest it
        is fetched alone: nothing would tell whether another node sends the right bytes."""
        if blob.digest is None:
            return blob
        near = tuple(self.source(peer, blob.digest) for peer in self.peers if not peer.is_far) + blob.near
        far = tuple(self.source(peer, blob.digest) for peer in self.peers if peer.is_far)
        return replace(blob, near=near, site=self._site(), sources=blob.sources + far)

    def _site(self) -> SharedDownloads | None:
        if self.site is None:
            return None
        policy = NetworkPolicy(trusted_hosts=_FLEET_NETWORKS, plain_http_hosts=frozenset())
        return SharedDownloads(self.site, self.outbound, policy)

    @contextmanager
    def joined_by(self, named: tuple[Peer, ...]) -> Iterator["PeerDownloads"]:
        """With the peers that a frontend named for one install. They may be in the fleet's private network and use
        plain HTTP, because their bytes are verified by digest."""
        if not named:
            yield self
            return
        policy, limits = self.outbound.policy, self.outbound.limits
        least = min(SLOW_BYTES_PER_S, (limits.bandwidth_bytes_per_s or SLOW_BYTES_PER_S) // 4)
        hosts = frozenset(urlsplit(peer.base_url).netloc.lower() for peer in named)
        outbound = self.outbound.allowing(
            NetworkPolicy(
                trusted_hosts=policy.trusted_hosts | _FLEET_NETWORKS,
                plain_http_hosts=policy.plain_http_hosts | hosts,
            ),
            replace(limits, headers_s=ANSWER_S, stall_window_s=ANSWER_S, stall_bytes=int(least * ANSWER_S)),
        )
        try:
            yield PeerDownloads(outbound, (*named, *self.peers), self.site)
        finally:
            outbound.close()
