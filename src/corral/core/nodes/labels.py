"""Labels: what a worker says, what an administrator says, and what follows from the hardware."""

import re
from collections.abc import Mapping

from corral.core.errors import InvalidInput
from corral.core.nodes.hardware import vram_label
from corral.core.nodes.node import Node

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")
MAX_LABELS = 64


RESERVED = ("node.name", "node.replica-slots", "gpu.vendor", "gpu.vram")


def check_operator_labels(labels: Mapping[str, str]) -> None:
    """Selectors rely on what a machine is: nobody may say otherwise."""
    taken = sorted(set(labels) & set(RESERVED))
    if taken:
        raise InvalidInput(
            f"{taken[0]!r} is a label Corral sets by itself from what the machine is; choose another key"
        )
    check_labels(labels)


def check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidInput(f"{len(labels)} labels are too many; at most {MAX_LABELS} fit on a node")
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            raise InvalidInput(
                f"{key!r} cannot be a label; use letters, digits and . _ / - and start with a letter or digit"
            )
        if len(value) > 255 or any(ord(char) < 32 for char in value):
            raise InvalidInput(f"the value of label {key!r} is over 255 characters or has control characters")


def derived_labels(node: Node) -> dict[str, str]:
    labels = {"node.name": node.name, "node.replica-slots": str(node.max_replicas_per_model)}
    if node.gpu_vendor:
        labels["gpu.vendor"] = node.gpu_vendor
    if node.total_vram:
        labels["gpu.vram"] = vram_label(node.total_vram)
    return labels


def effective_labels(node: Node) -> dict[str, str]:
    """An administrator's word goes before the worker's. What was derived goes before both: LocalAI's workers send some
    of it themselves, so it cannot be refused."""
    return {**node.worker_labels, **node.operator_labels, **derived_labels(node)}


def matches(node: Node, selector: Mapping[str, str]) -> bool:
    labels = effective_labels(node) if selector else {}
    return all(labels.get(key) == value for key, value in selector.items())
