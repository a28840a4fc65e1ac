"""What the galleries offer to the nodes: for each backend, the variant that nodes of each capability get, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from corral.artifacts import BackendEntry, Catalogue
from corral.artifacts.galleries.catalogue import localai_obstacle
from corral.core.backends.variants import Chosen, Resolution, Unfit, index_by_name, is_meta, resolve_variant
from corral.core.nodes.capability import capability_of
from corral.core.nodes.node import Node, NodeId, NodeStatus
from corral.core.nodes.observed import ObservedBackend
from corral.core.nodes.targets import takes_backends
from corral.core.sizes import read_size_bytes

DEVELOPMENT = "-development"
RESOLVED_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOffer:
    node_id: str
    node_name: str
    node_status: NodeStatus
    capability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOffer:
    """The variant that nodes of one capability get, or the reason why none fits."""

    capability: str
    variant: str | None
    version: str
    size_bytes: int | None
    reason: str
    nodes: int
    """The number of nodes with this capability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOffer:
    id: str
    """`gallery@name`, the reference to install it by; the name alone means the first gallery that has it."""
    name: str
    gallery: str
    description: str
    tags: list[str]
    license: str
    icon: str
    urls: list[str]
    alias: str
    version: str
    size_bytes: int | None
    """The download size that the gallery states; null when it states none."""
    is_meta: bool
    """Whether it is a meta backend: each node gets the variant for its hardware."""
    is_development: bool
    installed_on: int
    """The number of nodes that have it."""
    variants: list[VariantOffer]


def entry_id(entry: BackendEntry) -> str:
    return f"{entry.gallery}@{entry.name}"


def entry_bytes(entry: BackendEntry) -> int | None:
    if entry.corral is not None and entry.corral.size_bytes:
        return entry.corral.size_bytes
    return read_size_bytes(entry.size) if entry.size else None


def is_development(entry: BackendEntry) -> bool:
    return entry.name.lower().endswith(DEVELOPMENT)


class Families:
    """The meta backends of every gallery and their variants. Variants are resolved once per catalogue."""

    def __init__(self, entries: tuple[BackendEntry, ...]) -> None:
        self.entries = entries
        galleries = dict.fromkeys(entry.gallery for entry in entries)
        # A meta backend stays within its gallery: `llama-cpp` of one must not mean a variant of another's.
        self._by_gallery = {
            gallery: index_by_name(entry for entry in entries if entry.gallery == gallery) for gallery in galleries
        }
        self._variants = {
            f"{entry.gallery}@{target}".lower()
            for entry in entries
            if is_meta(entry)
            for target in entry.capabilities.values()
            if target.lower() != entry.name.lower()
        }
        self._resolved: dict[tuple[str, str, str], Resolution] = {}

    def is_variant(self, entry: BackendEntry) -> bool:
        """Whether some meta backend installs it."""
        return entry_id(entry).lower() in self._variants

    def resolve(self, entry: BackendEntry, capability: str) -> Resolution:
        key = (entry.gallery, entry.name, capability)
        if key not in self._resolved:
            if len(self._resolved) > RESOLVED_MAX:
                self._resolved.clear()
            self._resolved[key] = resolve_variant(self._by_gallery[entry.gallery], entry.name, capability)
        return self._resolved[key]

    def entry_of(self, entry: BackendEntry, chosen: Chosen) -> BackendEntry:
        return self._by_gallery[entry.gallery][chosen.name.lower()]


@dataclass(frozen=True, slots=True, order=True)
class _Group:
    """Nodes that get the same build."""

    capability: str
    localai: bool

    @property
    def label(self) -> str:
        return f"{self.capability} (LocalAI worker)" if self.localai else self.capability


def _group_of(node: Node) -> _Group:
    return _Group(capability_of(node), not node.speaks_corral)


@dataclass(frozen=True)
class Offers:
    """What one catalogue offers to one fleet."""

    catalogue: Catalogue
    families: Families
    nodes: Sequence[Node]
    installed: Mapping[NodeId, Sequence[ObservedBackend]]

    @cached_property
    def backend_nodes(self) -> list[Node]:
        return [node for node in self.nodes if takes_backends(node)]

    @cached_property
    def capabilities(self) -> Counter[str]:
        return Counter(capability_of(node) for node in self.backend_nodes)

    @cached_property
    def _groups(self) -> Counter["_Group"]:
        return Counter(map(_group_of, self.backend_nodes))

    @cached_property
    def _holders(self) -> dict[str, set[NodeId]]:
        """The nodes that have a backend, by its lower-case name or alias."""
        found: dict[str, set[NodeId]] = {}
        for node in self.backend_nodes:
            for backend in self.installed.get(node.id, ()):
                for name in {backend.name, backend.alias} - {""}:
                    found.setdefault(name.lower(), set()).add(node.id)
        return found

    def holders(self, name: str) -> set[NodeId]:
        return self._holders.get(name.lower(), set())

    def fits_any_node(self, entry: BackendEntry) -> bool:
        """Whether a variant fits some node; true for every entry while there are no nodes."""
        if not self._groups:
            return True
        return any(isinstance(self._resolve(entry, group)[0], Chosen) for group in self._groups)

    def variants(self, entry: BackendEntry, name: str = "") -> list[VariantOffer]:
        """Of this entry alone or, with `name`, of all galleries that have the name."""
        return [self._variant(entry, group, count, name) for group, count in sorted(self._groups.items())]

    def _resolve_name(self, name: str, group: "_Group") -> tuple[Resolution, BackendEntry | None]:
        offered = self._for_localai if group.localai else self.catalogue
        resolution = offered.resolve(name, group.capability)
        if isinstance(resolution, Chosen):
            return resolution, offered.chosen_entry(name, resolution)
        other = self.catalogue.resolve(name, group.capability)
        if isinstance(other, Chosen):
            return Unfit(localai_obstacle(self.catalogue.chosen_entry(name, other))), None
        return resolution, None

    def _resolve(self, entry: BackendEntry, group: "_Group") -> tuple[Resolution, BackendEntry | None]:
        """The build, as an install chooses it: on LocalAI workers, a name means what they can run of it."""
        resolution = self.families.resolve(entry, group.capability)
        chosen = self.families.entry_of(entry, resolution) if isinstance(resolution, Chosen) else None
        obstacle = localai_obstacle(chosen) if group.localai and chosen is not None else ""
        if not obstacle:
            return resolution, chosen
        if self.catalogue.by_name.get(entry.name.lower()) is entry:
            other = self._for_localai.resolve(entry.name, group.capability)
            if isinstance(other, Chosen):
                return other, self._for_localai.chosen_entry(entry.name, other)
        return Unfit(obstacle), None

    @cached_property
    def _for_localai(self) -> Catalogue:
        return self.catalogue.for_localai()

    def _variant(self, entry: BackendEntry, group: "_Group", count: int, name: str) -> VariantOffer:
        resolution, chosen = self._resolve_name(name, group) if name else self._resolve(entry, group)
        return VariantOffer(
            capability=group.label,
            variant=chosen.name if chosen is not None else None,
            version=chosen.version if chosen is not None else "",
            size_bytes=entry_bytes(chosen) if chosen is not None else None,
            reason=_describe(resolution),
            nodes=count,
        )

    def show(self, entry: BackendEntry, name: str = "") -> BackendOffer:
        return BackendOffer(
            id=entry_id(entry),
            name=entry.name,
            gallery=entry.gallery,
            description=entry.description.strip(),
            tags=entry.tags,
            license=entry.license,
            icon=entry.icon,
            urls=entry.urls,
            alias=entry.alias,
            version=entry.version,
            size_bytes=entry_bytes(entry),
            is_meta=is_meta(entry),
            is_development=is_development(entry),
            installed_on=len(self.holders(entry.name)),
            variants=self.variants(entry, name),
        )

    def show_nodes(self) -> list[NodeOffer]:
        return [
            NodeOffer(
                node_id=node.id,
                node_name=node.name,
                node_status=node.localai_status,
                capability=_group_of(node).label,
            )
            for node in self.backend_nodes
        ]


def _describe(resolution: Resolution) -> str:
    if isinstance(resolution, Unfit) and resolution.instead:
        return f"{resolution.reason}: install {resolution.instead} instead"
    return resolution.reason


def matches(entry: BackendEntry, *, term: str, tag: str) -> bool:
    if tag and tag.lower() not in {each.lower() for each in entry.tags}:
        return False
    words = term.lower().split()
    text = " ".join((entry.name, entry.alias, entry.description, *entry.tags, entry.gallery)).lower()
    return all(word in text for word in words)


def all_tags(entries: Iterable[BackendEntry]) -> list[str]:
    return sorted({tag for entry in entries for tag in entry.tags}, key=str.lower)
