"""Metrics in Prometheus's text format."""

MOST_LINES = 20_000
MOST_CHARACTERS = 4 << 20


def sum_metrics(text: str) -> dict[str, float]:
    """The value of each metric, summed over its labels. Buckets of histograms are left out."""
    sums: dict[str, float] = {}
    for line in text[:MOST_CHARACTERS].splitlines()[:MOST_LINES]:
        if not line or line[0] == "#":
            continue
        name, brace, rest = line.partition("{")
        if brace:
            rest = rest.rpartition("}")[2]
        else:
            name, _, rest = line.partition(" ")
        if name.endswith("_bucket"):
            continue
        try:
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
        sums[name] = sums.get(name, 0.0) + value
    return sums
