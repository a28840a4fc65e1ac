"""Counters, histograms and gauges in Prometheus's text format. A child is looked up once; then an update is one
addition."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, TypeVar

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def samples(self, name: str, labels: str) -> Iterable[tuple[str, str, float]]:
        yield name, labels, self.value


class Histogram:
    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self._sum = 0.0

    @property
    def counts(self) -> tuple[int, ...]:
        """Counts by bucket, not cumulative; the last bucket is above all bounds."""
        return tuple(self._counts)

    @property
    def sum_s(self) -> float:
        return self._sum

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds

    def observe_all(self, seconds: Collection[float]) -> None:
        counts = self._counts
        for each in seconds:
            counts[bisect_left(SECONDS, each)] += 1
        self._sum += sum(seconds)

    def samples(self, name: str, labels: str) -> Iterable[tuple[str, str, float]]:
        total = 0
        lead = f"{labels}," if labels else ""
        for bound, count in zip((*(f"{bound:g}" for bound in SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{name}_bucket", f'{lead}le="{bound}"', total
        yield f"{name}_sum", labels, self._sum
        yield f"{name}_count", labels, total


Child = TypeVar("Child", Counter, Histogram)


class Family(Generic[Child]):
    def __init__(self, make: type[Child], kind: str, name: str, text: str, labels: Sequence[str]) -> None:
        self._make: type[Child] = make
        self.kind = kind
        self.name = name
        self.text = text
        self._labels = tuple(labels)
        self._children: dict[tuple[str, ...], Child] = {}

    def child(self, *values: str) -> Child:
        assert len(values) == len(self._labels)
        return self._children.setdefault(values, self._make())

    def forget(self, which: Callable[[tuple[str, ...]], bool]) -> None:
        """Removes the children whose labels match."""
        self._children = {values: child for values, child in self._children.items() if not which(values)}

    def children(self) -> Iterable[tuple[tuple[str, ...], Child]]:
        return self._children.items()

    def samples(self) -> Iterable[tuple[str, str, float]]:
        for values, child in self._children.items():
            yield from child.samples(self.name, _label_text(self._labels, values))


class Gauges:
    """Gauges that are read when they are collected: `read` returns the value of each set of labels."""

    kind = "gauge"

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]
    ) -> None:
        self.name = name
        self.text = text
        self._labels = tuple(labels)
        self._read = read

    def samples(self) -> Iterable[tuple[str, str, float]]:
        for values, value in self._read():
            yield self.name, _label_text(self._labels, values), value


class MetricRegistry:
    def __init__(self) -> None:
        self._families: list[Family[Counter] | Family[Histogram] | Gauges] = []

    def counter(self, name: str, text: str, *labels: str) -> Family[Counter]:
        family = Family(Counter, "counter", name, text, labels)
        self._families.append(family)
        return family

    def histogram(self, name: str, text: str, *labels: str) -> Family[Histogram]:
        family = Family(Histogram, "histogram", name, text, labels)
        self._families.append(family)
        return family

    def gauges(
        self, name: str, text: str, *labels: str, read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]
    ) -> None:
        self._families.append(Gauges(name, text, labels, read))

    def collect(self) -> list["Metric"]:
        return [(family.name, family.kind, family.text, list(family.samples())) for family in self._families]


Metric = tuple[str, str, str, list[tuple[str, str, float]]]
"""Name, kind, help text, and samples (name, labels, value)."""


def render(metrics: Iterable[Metric]) -> str:
    lines: list[str] = []
    for name, kind, text, samples in metrics:
        lines += (f"# HELP {name} {text}", f"# TYPE {name} {kind}")
        for sample, labels, value in samples:
            lines.append(f"{sample}{{{labels}}} {_number(value)}" if labels else f"{sample} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _label_text(names: Sequence[str], values: Sequence[str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
