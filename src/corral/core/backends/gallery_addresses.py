"""Reads the gallery settings: LocalAI's JSON, a list of tables, or `name=address,name=address`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryAddress:
    name: str
    url: str
    mirrors: tuple[str, ...] = ()
    verification: Mapping[str, Any] | None = None
    """How its images must be signed, in LocalAI's format."""


LOCALAI_BACKEND_GALLERY = GalleryAddress(
    name="localai",
    url="https://index.localai.io/backends",
    mirrors=("github:mudler/LocalAI/backend/index.yaml@master",),
)
LOCALAI_MODEL_GALLERY = GalleryAddress(
    name="localai",
    url="https://index.localai.io/models",
    mirrors=("github:mudler/LocalAI/gallery/index.yaml@master",),
)


def read_gallery_list(value: Any) -> tuple[GalleryAddress, ...]:
    """Raises ValueError with the reason."""
    if isinstance(value, str):
        text = value.strip()
        given = _from_json(text) if text.startswith("[") else _from_pairs(text)
    else:
        given = value
    if not isinstance(given, Sequence):
        raise ValueError(_HOW)
    galleries = tuple(item if isinstance(item, GalleryAddress) else _gallery(item) for item in given)
    names = [gallery.name for gallery in galleries]
    if len(set(names)) < len(names):
        raise ValueError("two galleries have the same name; rename one, as backends are addressed by gallery@name")
    return galleries


_HOW = 'is not a list of galleries; write for example ours=https://example.org/index.yaml or [{"name":...,"url":...}]'


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _from_pairs(text: str) -> list[Mapping[str, str]]:
    pairs = [item.strip().partition("=") for item in text.split(",") if item.strip()]
    if any(not name or not url for name, _, url in pairs):
        raise ValueError(_HOW)
    return [{"name": name.strip(), "url": url.strip()} for name, _, url in pairs]


def _gallery(item: Any) -> GalleryAddress:
    if not isinstance(item, Mapping) or not isinstance(item.get("url"), str) or not item["url"].strip():
        raise ValueError(_HOW)
    name, mirrors = item.get("name"), item.get("mirrors") or ()
    if not isinstance(name, str) or not name.strip() or "@" in name or "/" in name:
        raise ValueError(f"the gallery at {item['url']} needs a name without @ and /")
    if name == "corral":
        raise ValueError("'corral' is the name of Corral's own gallery; choose another")
    if (
        not isinstance(mirrors, Sequence)
        or isinstance(mirrors, str)
        or not all(isinstance(url, str) for url in mirrors)
    ):
        raise ValueError(f"the mirrors of gallery {name!r} are not a list of addresses")
    return GalleryAddress(
        name=name.strip(),
        url=item["url"].strip(),
        mirrors=tuple(mirrors),
        verification=item.get("verification"),
    )
