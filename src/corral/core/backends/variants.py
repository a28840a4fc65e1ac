"""Which concrete gallery entry a backend's name means on a node of a given capability. The rules are LocalAI's, so that
a gallery means the same to both. Corral adds the reason, an alternative where no entry fits, and the choice between
galleries that have the same name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from corral.core.backends.acceleration import has_accelerator, is_accelerated
from corral.core.errors import CorralError

ANY_CAPABILITY = "disable"
"""Disables the compatibility check, as in LocalAI."""


class Variant(Protocol):
    """The fields of a gallery entry that the rules use."""

    @property
    def name(self) -> str: ...
    @property
    def uri(self) -> str: ...
    @property
    def capabilities(self) -> Mapping[str, str]: ...


Entry = TypeVar("Entry", bound=Variant)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The concrete entry's name, and why it was chosen."""

    name: str
    reason: str
    gallery: str = ""
    """The gallery of the entry, where several were asked."""

    @property
    def id(self) -> str:
        """`gallery@name`."""
        return f"{self.gallery}@{self.name}"


@dataclass(frozen=True, slots=True)
class Unfit:
    """No entry fits. `instead` names an entry of the same family that does, if there is one."""

    reason: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Unknown for now: the source cannot be reached, and no earlier answer is stored."""

    error: CorralError


Resolution = Chosen | Unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryAnswer:
    """What a name means in one gallery."""

    gallery: str
    resolution: Resolution
    accelerated: bool
    """Whether the build uses an accelerator."""


def is_meta(entry: Variant) -> bool:
    return bool(entry.capabilities) and not entry.uri


def index_by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    """By lower-case name; the first entry of a name wins."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.name.lower(), entry)
    return found


def pick_capability(capabilities: Mapping[str, str], capability: str) -> str | None:
    """The key of a capability map that applies: the node's own, else `default`, else `cpu`."""
    for key in (capability, "default", "cpu"):
        if key in capabilities:
            return key
    return None


def needed_capability(name: str, uri: str) -> tuple[str, str] | None:
    """The capability a concrete entry requires, by its name and source: the word that shows it, and the capability."""
    text = f"{name} {uri}".lower()
    for words, need in (
        (("darwin", "mlx", "metal"), "metal"),
        (("l4t",), "nvidia-l4t"),
        (("cuda", "nvidia"), "nvidia"),
        (("rocm", "hip", "amd"), "amd"),
        (("sycl", "intel"), "intel"),
    ):
        for word in words:
            if word in text:
                return word, need
    return None


def is_compatible(name: str, uri: str, capability: str) -> bool:
    if capability == ANY_CAPABILITY:
        return True
    needed = needed_capability(name, uri)
    if needed is None:
        return True
    match needed[1]:
        case "metal":
            return capability in ("metal", "darwin-x86")
        case "nvidia-l4t" | "nvidia" as family:
            return capability.startswith(family)
        case exact:
            return capability == exact


def resolve_variant(
    by_name: Mapping[str, Variant],
    name: str,
    capability: str,
    *,
    substitute: bool = False,
    without: Collection[str] = (),
) -> Resolution:
    """The concrete entry of one gallery for `name`. With `substitute`, a concrete entry that does not fit is replaced
    by its family's entry for this node instead of being rejected. A family has a build that is not in `without`."""
    entry = by_name.get(name.lower())
    if entry is None:
        return Unfit(f"No gallery has a backend named {name}")
    if is_meta(entry):
        return _from_map(by_name, entry, capability, without)
    if is_compatible(entry.name, entry.uri, capability):
        return Chosen(entry.name, f"{entry.name} was requested by name and fits this node ({capability})")
    return _misfit(by_name, entry, capability, substitute=substitute)


def _from_map(
    by_name: Mapping[str, Variant], meta: Variant, capability: str, without: Collection[str] = ()
) -> Resolution:
    left = {key: target for key, target in meta.capabilities.items() if target.lower() not in without}
    key = pick_capability(left, capability)
    if key is None:
        offered = ", ".join(sorted(meta.capabilities))
        return Unfit(f"{meta.name} has no build for {capability}; it has builds for {offered}")
    target = by_name.get(meta.capabilities[key].lower())
    if target is None:
        return Unfit(f"{meta.name} maps {key} to {meta.capabilities[key]}, but no gallery has that entry")
    if not is_compatible(target.name, target.uri, capability):
        # LocalAI removes what does not fit the machine before it looks a name up, so the map leads to nothing.
        required = _own_capability(target) or "other hardware"
        return Unfit(f"{meta.name} has no build for {capability}: {target.name}, its build for {key}, needs {required}")
    if key == capability:
        return Chosen(target.name, f"{target.name} is the build for {capability}")
    return Chosen(target.name, f"{meta.name} has no build for {capability}; {target.name} is its build for {key}")


def _misfit(by_name: Mapping[str, Variant], entry: Variant, capability: str, *, substitute: bool) -> Resolution:
    required = _own_capability(entry) or "other hardware"
    instead = _from_map(by_name, entry, capability) if entry.capabilities else Unfit("")
    if not isinstance(instead, Chosen):
        return Unfit(f"{entry.name} requires {required}, but this is a {capability} node, and no other build fits")
    if substitute:
        reason = f"{instead.name} replaces {entry.name}, which requires {required}: this is a {capability} node"
        return Chosen(instead.name, reason)
    reason = f"{entry.name} requires {required}, but this is a {capability} node. {instead.name} fits"
    return Unfit(reason, instead.name)


def resolve_in_galleries(
    galleries: Mapping[str, Mapping[str, Variant]],
    name: str,
    capability: str,
    *,
    substitute: bool = False,
    without: Collection[str] = (),
) -> Resolution:
    """The entry for a name that several galleries have, in their order of preference. `without`: builds that do not
    exist for the node's platform, as `gallery@name`."""
    answers = []
    for gallery, by_name in galleries.items():
        left_out = [one.removeprefix(f"{gallery}@").lower() for one in without if one.startswith(f"{gallery}@")]
        found = resolve_variant(by_name, name, capability, substitute=substitute, without=left_out)
        entry = by_name[found.name.lower()] if isinstance(found, Chosen) else None
        accelerated = entry is not None and bool(is_accelerated(entry.name, entry.uri, entry.capabilities))
        answers.append(GalleryAnswer(gallery=gallery, resolution=found, accelerated=accelerated))
    return pick_answer(answers, name, capability)


def pick_answer(answers: Sequence[GalleryAnswer], name: str, capability: str) -> Resolution:
    """The first build. On a node with an accelerator, a build that uses it comes before all that do not, whichever
    gallery has it. `answers` are in the order of the galleries; there is at least one if a gallery has the name."""
    if not answers:
        return Unfit(f"No gallery has a backend named {name}")
    fitting = [answer for answer in answers if isinstance(answer.resolution, Chosen)]
    if not fitting:
        return answers[0].resolution
    fast = [answer for answer in fitting if answer.accelerated] if has_accelerator(capability) else []
    best = (fast or fitting)[0]
    assert isinstance(best.resolution, Chosen)
    reason = best.resolution.reason
    if best is not answers[0]:
        lacks = "accelerated build" if fast and isinstance(answers[0].resolution, Chosen) else "build"
        reason = f"{reason}, from gallery {best.gallery}; gallery {answers[0].gallery} has no {lacks} for {capability}"
    return Chosen(best.resolution.name, reason, best.gallery)


def _own_capability(entry: Variant) -> str | None:
    """The key of a concrete entry in its own family's map; the most specific one if there are several."""
    keys = [key for key, target in entry.capabilities.items() if target.lower() == entry.name.lower()]
    if keys:
        return max(keys, key=len)
    needed = needed_capability(entry.name, entry.uri)
    return needed[1] if needed else None


def resolve_for_nodes(
    galleries: Mapping[str, Mapping[str, Variant]], name: str, capabilities: Mapping[str, str]
) -> dict[str, Resolution]:
    """One resolution per node id, so that a node without a fitting variant is known before anything is sent to it."""
    by_capability = {
        capability: resolve_in_galleries(galleries, name, capability) for capability in set(capabilities.values())
    }
    return {node: by_capability[capability] for node, capability in capabilities.items()}
