"""One build of a backend, as one value: planned, stored, sent to workers and installed without being copied apart."""

from dataclasses import dataclass, fields, replace

from corral.core.backends.variants import Unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRef:
    """What a build is called and where its bytes come from. An empty field is unknown."""

    name: str = ""
    """The build's own name, which is also its directory on the node."""
    alias: str = ""
    """A second name under which models may refer to it."""
    uris: tuple[str, ...] = ()
    """The source, then its mirrors. Tags are replaced by digests once they have been looked up."""
    digest: str = ""
    """Of the only acceptable version. Empty where it is not known before the bytes have arrived."""
    sha256: str = ""
    """Of a plain download, as its gallery promises it."""
    version: str = ""
    manifest: str = ""
    """JSON text that says how to start it. Empty where the artifact contains its own."""

    def with_overrides(self, other: "BuildRef") -> "BuildRef":
        """This build with every field that is set in `other`."""
        set_fields = {one.name: value for one in fields(other) if (value := getattr(other, one.name))}
        return replace(self, **set_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBackend:
    """The build that a backend's name means on one kind of node."""

    build: BuildRef
    reason: str
    """Why this build."""
    unconfirmed: str = ""
    """Why the source cannot be asked now, in which case the build is the last known one. Empty if it was asked."""
    pinned: bool = False
    """Whether a pin prescribes this version."""


BuildResolution = ResolvedBackend | Unfit


def plain_name(reference: str) -> str:
    """`gallery@name` and `name` are one backend."""
    return reference.rpartition("@")[2]


def short_digest(digest: str) -> str:
    """The first twelve hexadecimal digits, for people."""
    return digest[:19] if digest.startswith("sha256:") else digest
