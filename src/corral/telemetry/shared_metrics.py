"""Metrics of several processes that share one port: each process answers for all of them.

Each process writes its counts to its own file every two seconds, and continues from them after a restart. Prometheus
sees one frontend, whichever process receives the request."""

from collections.abc import Iterable

import msgspec

from corral.telemetry.metrics import Metric


def encode_metrics(metrics: Iterable[Metric]) -> bytes:
    return msgspec.json.encode(list(metrics))


def decode_metrics(content: bytes | None) -> list[Metric]:
    """Empty when there is no readable content."""
    if not content:
        return []
    try:
        return msgspec.json.decode(content, type=list[Metric])
    except msgspec.DecodeError:
        return []


def add_metrics(parts: Iterable[list[Metric]]) -> list[Metric]:
    """Adds samples: counts, buckets and gauges of one frontend are the sums of its processes."""
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
    """The metrics that outlive the process that counted them."""
    return [metric for metric in metrics if metric[1] != "gauge"]
