"""Another worker as a source: it has the blob, names it by digest, and we check it like anybody's bytes."""

from dataclasses import dataclass, replace

from corral.artifacts.blobs import Blob, BlobSource
from corral.artifacts.client import Outbound
from corral.artifacts.digests import Digest
from corral.artifacts.http_source import HttpSource
from corral.artifacts.settings import Peer

BLOB_PATH = "/artifacts/blobs/"
"""A worker serves `BLOB_PATH + digest`, with ranges, from `Artifacts.find_blob`."""


@dataclass(frozen=True, slots=True)
class Peers:
    outbound: Outbound
    peers: tuple[Peer, ...]

    def source(self, peer: Peer, digest: Digest) -> BlobSource:
        headers = {"Authorization": f"Bearer {peer.token}"} if peer.token else {}
        return HttpSource(
            outbound=self.outbound, url=f"{peer.base_url.rstrip('/')}{BLOB_PATH}{digest}", headers=lambda: headers
        )

    def before(self, blob: Blob) -> Blob:
        """The blob with peers asked first: they are near, and the registry is everybody's."""
        if blob.digest is None or not self.peers:
            return blob
        nearby = tuple(self.source(peer, blob.digest) for peer in self.peers)
        return replace(blob, sources=nearby + blob.sources)
