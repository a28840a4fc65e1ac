"""Builds the installer of one data directory."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from corral.artifacts.content.blobs import BlobStore
from corral.artifacts.content.layers import LayerStore
from corral.artifacts.content.versions import VersionStore
from corral.artifacts.disk.space import SpaceReservations
from corral.artifacts.disk.staging import Staging
from corral.artifacts.errors import disk_errors
from corral.artifacts.install.installer import Installer
from corral.artifacts.install.resolve import SourceResolver
from corral.artifacts.net.client import Outbound
from corral.artifacts.oci.image import OciPlatform, this_platform
from corral.artifacts.oci.registry import Registries, read_docker_logins
from corral.artifacts.pypi.source_builds import SourceBuilds
from corral.artifacts.settings import ArtifactSettings, NetworkPolicy
from corral.artifacts.sources.peer import PeerDownloads
from corral.system import Clock, Ids


def _operators_hosts(settings: ArtifactSettings) -> frozenset[str]:
    """Hosts in an operator's settings may have private addresses; a user's reference may not."""
    addresses = [
        settings.hugging_face.endpoint,
        settings.pypi.index_url,
        settings.s3.endpoint,
        *(peer.base_url for peer in settings.peers),
        *(url for gallery in settings.galleries for url in (gallery.url, *gallery.mirrors)),
        *(f"//{host}" for mirrors in settings.registry_mirrors.values() for host in mirrors),
    ]
    return frozenset(urlsplit(address).netloc.lower() for address in addresses if urlsplit(address).netloc)


def network_policy(settings: ArtifactSettings) -> NetworkPolicy:
    return replace(settings.network, trusted_hosts=settings.network.trusted_hosts | _operators_hosts(settings))


def build_installer(
    settings: ArtifactSettings, *, clock: Clock, ids: Ids, platform: OciPlatform | None = None
) -> Installer:
    root: Path = settings.data_dir
    with disk_errors(f"opening {root}"):
        root.mkdir(parents=True, exist_ok=True)
        staging = Staging(root / "staging", ids)
        outbound = Outbound(network_policy(settings), settings.transfer, clock=clock, ids=ids)
        logins = read_docker_logins(settings.docker_config) if settings.docker_config else {}
        registries = Registries(
            outbound,
            logins={**logins, **settings.registry_logins},
            mirrors=settings.registry_mirrors,
            plain_http_hosts=settings.network.plain_http_hosts,
        )
        blobs = BlobStore(root / "blobs", outbound, keep_free_bytes=settings.disk_reserve_bytes)
        reservations = SpaceReservations(root, settings.disk_reserve_bytes)
        builds = SourceBuilds(
            root=root / "builds",
            locks_dir=root / "locks",
            settings=settings.pypi,
            blobs=blobs,
            staging=staging,
            reservations=reservations,
            clock=clock,
        )
        return Installer(
            settings=settings,
            clock=clock,
            resolver=SourceResolver(
                settings=settings,
                outbound=outbound,
                registries=registries,
                staging=staging,
                builds=builds,
                clock=clock,
                platform=platform or this_platform(),
            ),
            blobs=blobs,
            layers=LayerStore(root / "layers", staging),
            versions=VersionStore(settings.backends_dir, staging, ids),
            staging=staging,
            reservations=reservations,
            peers=PeerDownloads(outbound, settings.peers),
        )
