"""Reads from the weights on disk what the memory of a model depends on."""

import re
from pathlib import Path

from corral.core.replicas.llama_cpp import WeightFacts
from corral.formats.gguf import HEAD_BYTES, NotGguf, read_gguf
from corral.system import Disk

_PART = re.compile(r"(?P<name>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf\Z")
_MOST_PARTS = 200


def read_weight_facts(path: str, disk: Disk) -> WeightFacts | None:
    """Blocking. None for anything but a GGUF file. Raises OSError."""
    if not path.lower().endswith(".gguf"):
        return None
    found = disk.read_head(Path(path), HEAD_BYTES)
    if found is None:
        return None
    head, size = found
    try:
        facts = read_gguf(head)
    except NotGguf:
        return None
    return WeightFacts(
        size_bytes=size + _size_of_other_parts(path, disk),
        layers=facts.layers,
        trained_context=facts.trained_context,
        cache_bytes_per_token=facts.cache_bytes_per_token,
    )


def _size_of_other_parts(path: str, disk: Disk) -> int:
    """A large model is split into files; the engine is given the first and finds the others by their names."""
    part = _PART.match(path)
    if part is None:
        return 0
    count = min(int(part["count"]), _MOST_PARTS)
    names = (f"{part['name']}-{number:05}-of-{part['count']}.gguf" for number in range(1, count + 1))
    heads = (disk.read_head(Path(name), 0) for name in names if name != path)
    return sum(head[1] for head in heads if head is not None)
