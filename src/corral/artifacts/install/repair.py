"""Checks and repairs damaged versions."""

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import encode_manifest
from corral.artifacts.content.verify import Verified, verify_version
from corral.artifacts.content.versions import InstalledVersion, directory_name
from corral.artifacts.digests import parse_digest
from corral.artifacts.disk.locks import held
from corral.artifacts.errors import BadReference, NotInstalled
from corral.artifacts.install.installer import Installer
from corral.artifacts.references import OciImage, parse_reference
from corral.artifacts.requests import BackendRequest
from corral.core.backends.build import BuildRef


def verify_backend(installer: Installer, name: str, cancel: CancelToken) -> list[Verified]:
    """Checks every version of one backend, newest first. Installs of that name wait."""
    with held(installer.locks_dir, f"backend-{directory_name(name)}", cancel):
        backend = installer.versions.backend(name)
        if backend is None or not backend.versions:
            raise NotInstalled(f"Backend {name} is not installed here.")
        return [verify_version(version, installer.layers, cancel) for version in backend.versions]


def request_again(version: InstalledVersion) -> BackendRequest:
    """The request that installs this version again, pinned to its digest."""
    metadata = version.metadata
    if version.made_by != "corral":
        raise BadReference(f"{version.name} was not installed by Corral, so Corral cannot repair it. Install it again.")
    uris = tuple(uri for uri in (metadata.source, metadata.uri) if _is_pinned_image(uri)) or (metadata.uri,)
    build = BuildRef(
        name=version.name,
        alias=metadata.alias,
        uris=uris,
        digest=parse_digest(metadata.digest),
        version=metadata.version,
        manifest=encode_manifest(metadata.manifest),
    )
    return BackendRequest(build=build, gallery_url=metadata.gallery_url, signatures=metadata.signatures)


def _is_pinned_image(uri: str) -> bool:
    """A tag may have moved; the digest it pointed at may still exist."""
    try:
        reference = parse_reference(uri)
    except BadReference:
        return False
    return isinstance(reference, OciImage) and reference.digest is not None
