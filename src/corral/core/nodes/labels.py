"""Labels of a node: from its worker, from an administrator, and derived from its hardware."""

import re
from collections.abc import Mapping

from corral.core.errors import InvalidInput
from corral.core.nodes.hardware import vram_label
from corral.core.nodes.node import Node

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")
MAX_LABELS = 64


RESERVED = ("node.name", "node.replica-slots", "gpu.vendor", "gpu.vram")


def check_operator_labels(labels: Mapping[str, str]) -> None:
    """Derived labels cannot be overridden: selectors rely on them."""
    taken = sorted(set(labels) & set(RESERVED))
    if taken:
        raise InvalidInput(f"Corral sets the label {taken[0]!r} from the hardware of the node; choose another key")
    check_labels(labels)


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"{len(labels)} labels are too many; a node can have at most {MAX_LABELS}")
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise InvalidInput(
                f"{key!r} is not a valid label key; use letters, digits and . _ / - and start with a letter or digit"
            )
        if len(value) > 255 or any(ord(char) < 32 for char in value):
            raise InvalidInput(f"the value of label {key!r} is longer than 255 characters or has control characters")


def derived_labels(node: Node) -> dict[str, str]:
    labels = {"node.name": node.name, "node.replica-slots": str(node.max_replicas_per_model)}
    if node.gpu_vendor:
        labels["gpu.vendor"] = node.gpu_vendor
    if node.total_vram:
        labels["gpu.vram"] = vram_label(node.total_vram)
    return labels


def effective_labels(node: Node) -> dict[str, str]:
    """Labels of an administrator override those of the worker. Derived labels override both: LocalAI workers send
    some of them too, so they cannot be rejected."""
    return {**node.worker_labels, **node.operator_labels, **derived_labels(node)}


def matches(node: Node, selector: Mapping[str, str]) -> bool:
    labels = effective_labels(node) if selector else {}
    return all(labels.get(key) == value for key, value in selector.items())
