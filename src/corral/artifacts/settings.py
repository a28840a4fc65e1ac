"""An operator's settings for fetching and storing artifacts. Read once by a role's main and passed on."""

from dataclasses import dataclass, field
from pathlib import Path

from corral.artifacts.signatures import SignaturePolicy, read_policy
from corral.core.backends.gallery_addresses import GalleryAddress
from corral.system.s3 import S3Settings

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    connect_s: float = 10.0
    """How long one address may take to accept a connection."""
    headers_s: float = 30.0
    """How long a server may take from request to complete response headers."""
    stall_window_s: float = 60.0
    """A download is stalled when fewer than `stall_bytes` arrive in this window. There is no other deadline."""
    stall_bytes: int = 16 * 1024
    """The least that must arrive in one stall window."""
    attempts: int = 5
    """Attempts in a row without progress; bytes that arrive reset the count."""
    retry_base_s: float = 0.5
    """First back-off after a transient fault; doubles, with full jitter."""
    retry_cap_s: float = 30.0
    """Longest back-off."""
    retry_after_cap_s: float = 300.0
    """Longest Retry-After that is waited for. Beyond it the operation fails and reports when to retry."""
    bandwidth_bytes_per_s: int | None = None
    """Upper limit over all downloads of this process together; unset means no limit."""
    redirects: int = 5
    """How many redirects one request follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackLimits:
    total_bytes: int = 256 * GIB
    """Unpacked size of one artifact, over all its layers."""
    file_bytes: int = 128 * GIB
    """Size of one member."""
    ratio: int = 250
    """Ratio of unpacked to packed bytes, checked after `ratio_floor_bytes`."""
    ratio_floor_bytes: int = 128 * MIB
    """Below this many bytes the ratio is not checked: small files of zeros are common and harmless."""
    members: int = 500_000
    """Files, directories and links of one artifact."""
    seconds: float = 4 * 3600.0
    """Time limit for unpacking one artifact."""
    depth: int = 96
    """Depth of nested directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts (`name`, `name:port` or a network such as `10.0.0.0/8`) that may have private addresses."""
    plain_http_hosts: frozenset[str] = frozenset()
    """Hosts that may be contacted without TLS. Loopback is always allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """A bearer token used instead of name and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSettings:
    index_url: str = "https://pypi.org/simple"
    """The package index. A gallery may name an additional one for an engine, with `?index=`; pip's extra indexes are
    not used, because they would allow dependency confusion."""
    username: str = ""
    password: str = field(default="", repr=False)
    allow_source_builds: bool = False
    """`CORRAL_ALLOW_SOURCE_BUILDS`: build a package that has no usable wheel from its source, which runs its authors'
    code on this machine, as this user."""
    build_limit_s: float = 3600.0
    """How long one build may take before it is stopped."""
    pythons: tuple[str, ...] = ()
    """Where to look for other Pythons: names on the PATH, programs, or directories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceSettings:
    endpoint: str = "https://huggingface.co"
    """`HF_ENDPOINT`: the address of the hub or of a mirror."""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another worker that may have a blob already."""

    base_url: str
    token: str = field(default="", repr=False)
    is_far: bool = False
    """Asked only if the sources of a blob are unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GallerySettings:
    name: str
    url: str
    mirrors: tuple[str, ...] = ()
    optional: bool = False
    """An optional gallery that has never been reached is left out instead of failing the listing."""
    verification: SignaturePolicy | None = None
    """The signatures that the gallery's images require."""


def gallery_at(address: GalleryAddress) -> GallerySettings:
    """The gallery is optional, so that lookups elsewhere still work if it has never been reached."""
    return GallerySettings(
        name=address.name,
        url=address.url,
        mirrors=address.mirrors,
        optional=True,
        verification=read_policy(address.verification),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSettings:
    data_dir: Path
    """Holds blobs, layers, backends, models and the gallery cache. One filesystem, because files are shared by link."""
    transfer: TransferLimits = TransferLimits()
    unpack: UnpackLimits = UnpackLimits()
    network: NetworkPolicy = NetworkPolicy()
    registry_logins: dict[str, RegistryLogin] = field(default_factory=dict)
    """By registry host."""
    docker_config: Path | None = None
    """A docker `config.json` to take registry logins from."""
    registry_mirrors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By registry host: registries that are tried first, in order."""
    pypi: PypiSettings = PypiSettings()
    hugging_face: HuggingFaceSettings = HuggingFaceSettings()
    s3: S3Settings = field(default_factory=S3Settings)
    peers: tuple[Peer, ...] = ()
    galleries: tuple[GallerySettings, ...] = ()
    model_galleries: tuple[GallerySettings, ...] = ()
    parallel_layers: int = 3
    """Layers of one artifact that are processed in parallel."""
    keep_versions: int = 2
    """Versions of one backend that garbage collection keeps, including the current one."""
    keep_blobs: bool = True
    """Keep packed bytes after unpacking, for other workers to fetch. They are removed first when space is short."""
    disk_reserve_bytes: int = 256 * MIB
    """Space that no install may use, so that the node stays usable."""
    require_digest: bool = False
    """Reject downloads that neither the reference nor the gallery pins to a digest."""

    @property
    def backends_dir(self) -> Path:
        return self.data_dir / "backends"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"
