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

BLOB_PATH = "/artifacts/blobs/"
"""A worker serves `BLOB_PATH + digest`, with ranges, from `Artifacts.find_blob`."""

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

    def source(self, peer: Peer, digest: Digest) -> BlobSource:
        headers = {"Authorization": f"Bearer {peer.token}"} if peer.token else {}
        url = f"{peer.base_url.rstrip('/')}{BLOB_PATH}{digest}"
        return PeerSource(HttpSource(outbound=self.outbound, url=url, headers=lambda: headers))

    def before(self, blob: Blob) -> Blob:
        """The blob with peers tried first."""
        if blob.digest is None or not self.peers:
            return blob
        return replace(blob, near=tuple(self.source(peer, blob.digest) for peer in self.peers) + blob.near)

    @contextmanager
    def joined_by(self, named: tuple[Peer, ...]) -> Iterator["PeerDownloads"]:
        """With the peers that a frontend named for one install. They may be in the fleet's private network and use
        plain HTTP, because their bytes are verified by digest."""
        if not named:
            yield self
            return
        policy = self.outbound.policy
        hosts = frozenset(urlsplit(peer.base_url).netloc.lower() for peer in named)
        outbound = self.outbound.allowing(
            NetworkPolicy(
                trusted_hosts=policy.trusted_hosts | _FLEET_NETWORKS,
                plain_http_hosts=policy.plain_http_hosts | hosts,
            )
        )
        try:
            yield PeerDownloads(outbound, (*named, *self.peers))
        finally:
            outbound.close()
