"""What an operator may set about fetching and keeping artifacts. Read once by a role's main and handed over."""

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
    """Tries per request in a row without progress; bytes that arrive reset the count."""
    retry_base_s: float = 0.5
    """First back-off after a transient fault; doubles, with full jitter."""
    retry_cap_s: float = 30.0
    """Longest back-off."""
    retry_after_cap_s: float = 300.0
    """Longest Retry-After that is waited for; beyond it the operation fails and says when to come back."""
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
    """Unpacked to packed bytes, looked at once more than `ratio_floor_bytes` came out."""
    ratio_floor_bytes: int = 128 * MIB
    """Below this many bytes the ratio is not judged: small files of zeros are common and harmless."""
    members: int = 500_000
    """Files, directories and links of one artifact."""
    seconds: float = 4 * 3600.0
    """Time of one artifact's unpacking."""
    depth: int = 96
    """Directories inside one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    trusted_hosts: frozenset[str] = frozenset()
    """Hosts (`name`, `name:port` or a network such as `10.0.0.0/8`) that may lie at private addresses."""
    plain_http_hosts: frozenset[str] = frozenset()
    """Hosts that may be spoken to without TLS. Loopback always may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    """A bearer token used instead of name and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSettings:
    index_url: str = "https://pypi.org/simple"
    """The one package index. A second index is never asked: it would let a stranger's package win a name."""
    username: str = ""
    password: str = field(default="", repr=False)
    allow_source_builds: bool = False
    """`CORRAL_ALLOW_SOURCE_BUILDS`: build a package that has no usable wheel from its source, which runs its authors'
    code on this machine, as this user."""
    build_limit_s: float = 3600.0
    """How long one build may take before it is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceSettings:
    endpoint: str = "https://huggingface.co"
    """`HF_ENDPOINT`: where the hub, or a mirror of it, answers."""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another worker that may have a blob already."""

    base_url: str
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GallerySettings:
    name: str
    url: str
    mirrors: tuple[str, ...] = ()
    optional: bool = False
    """An optional gallery that has never been reached is left out instead of failing the listing."""
    verification: SignaturePolicy | None = None
    """The gallery's images have to be signed."""


def gallery_at(address: GalleryAddress) -> GallerySettings:
    """Optional: whoever looks something up elsewhere does not suffer from one that was never reached."""
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
    """By registry host: other registries asked first, in order."""
    pypi: PypiSettings = PypiSettings()
    hugging_face: HuggingFaceSettings = HuggingFaceSettings()
    s3: S3Settings = field(default_factory=S3Settings)
    peers: tuple[Peer, ...] = ()
    galleries: tuple[GallerySettings, ...] = ()
    model_galleries: tuple[GallerySettings, ...] = ()
    parallel_layers: int = 3
    """Layers of one artifact in work at once."""
    keep_versions: int = 2
    """Versions of one backend that garbage collection leaves, the current one included."""
    keep_blobs: bool = True
    """Keep packed bytes after unpacking, for other workers to fetch. They go first when space is short."""
    disk_reserve_bytes: int = 256 * MIB
    """Space that no install may use, so that the node stays usable."""
    require_digest: bool = False
    """Refuse downloads that neither the reference nor the gallery pins to a digest."""

    @property
    def backends_dir(self) -> Path:
        return self.data_dir / "backends"

    @property
    def models_dir(self) -> Path:
        return self.data_dir / "models"
