"""Which builds the worker of a node can run. A Corral worker runs all of them. A LocalAI worker runs OCI images that
contain LocalAI's `run.sh`, and knows nothing of Corral's manifests."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from corral.core.nodes.node import Node

LOCALAI_IMAGES = ("oci://", "quay.io", "ghcr.io", "docker.io", "ocifile://")
"""How a source begins that LocalAI takes for an image. It knows no other registry by its name alone."""


class GalleryEntry(Protocol):
    """The fields of a gallery entry that the filter uses."""

    @property
    def name(self) -> str: ...
    @property
    def gallery(self) -> str: ...
    @property
    def uri(self) -> str: ...
    @property
    def capabilities(self) -> Mapping[str, str]: ...


Entry = TypeVar("Entry", bound=GalleryEntry)


def find_obstacle(node: Node, name: str, *, uri: str, manifest: bool) -> str:
    """Why the node's worker cannot run the build; empty if it can. `manifest`: it is started by a Corral manifest."""
    return "" if node.speaks_corral else find_localai_obstacle(name, uri=uri, manifest=manifest)


def find_localai_obstacle(name: str, *, uri: str, manifest: bool) -> str:
    """The same for a LocalAI worker."""
    if manifest:
        return f"a LocalAI worker cannot start {name}, which needs a Corral manifest"
    if not uri.startswith(LOCALAI_IMAGES):
        return (
            f"a LocalAI worker cannot download {name} from {uri}: it knows only images of quay.io, ghcr.io and"
            " docker.io, and sources that begin with oci:// or ocifile://"
        )
    return ""


def pick_runnable(entries: Iterable[Entry], obstacle: Callable[[Entry], str]) -> tuple[Entry, ...]:
    """The entries without builds that have an obstacle, and without meta backends that lead to no other build. A
    gallery whose builds cannot run must not hide one whose builds can."""
    known = tuple(entries)
    builds = [entry for entry in known if entry.uri and not obstacle(entry)]
    targets = {(entry.gallery, entry.name.lower()) for entry in builds}
    metas = [
        entry
        for entry in known
        if not entry.uri and any((entry.gallery, one.lower()) in targets for one in entry.capabilities.values())
    ]
    kept = {id(entry) for entry in (*builds, *metas)}
    return tuple(entry for entry in known if id(entry) in kept)
