"""Metrics of several processes that share one port: whoever is asked answers for all.

Each process writes what it has counted to a file of its own, every other second, and goes on from there when it is
started again: to Prometheus the frontend is one, whichever process the kernel chose for the question."""

from collections.abc import Iterable

import msgspec

from corral.telemetry.metrics import Metric


def encode_metrics(metrics: Iterable[Metric]) -> bytes:
    return msgspec.json.encode(list(metrics))


def decode_metrics(content: bytes | None) -> list[Metric]:
    """Nothing, where there is nothing that can be read."""
    if not content:
        return []
    try:
        return msgspec.json.decode(content, type=list[Metric])
    except msgspec.DecodeError:
        return []


def add_metrics(parts: Iterable[list[Metric]]) -> list[Metric]:
    """Sample by sample: counts, buckets and gauges of one frontend are the sums of its processes'."""
    heads: dict[str, tuple[str, str]] = {}
    sums: dict[str, dict[tuple[str, str], float]] = {}
    for part in parts:
        for name, kind, text, samples in part:
            heads[name] = (kind, text)
            family = sums.setdefault(name, {})
            for sample, labels, value in samples:
                family[sample, labels] = family.get((sample, labels), 0.0) + value
    return [
        (name, kind, text, [(sample, labels, value) for (sample, labels), value in sums[name].items()])
        for name, (kind, text) in heads.items()
    ]


def without_gauges(metrics: Iterable[Metric]) -> list[Metric]:
    """What outlives the process that counted it."""
    return [metric for metric in metrics if metric[1] != "gauge"]
