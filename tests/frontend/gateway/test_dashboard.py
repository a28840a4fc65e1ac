"""The dashboard in deploy/ uses only metrics that exist."""

import json
import re
from pathlib import Path

from corral.controller.loop import ReconcileMetrics
from corral.telemetry.metrics import MetricRegistry, render
from harness.gateway import running_gateway

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "corral-serving.json"


async def test_every_metric_of_the_dashboard_exists() -> None:
    asked = set(re.findall(r"corral_[a-z_]+", json.dumps(json.loads(DASHBOARD.read_text())["panels"])))
    async with running_gateway() as gateway:
        told = set(re.findall(r"# TYPE (corral_\w+) ", gateway.metrics()))
    registry = MetricRegistry()
    ReconcileMetrics(registry)
    told |= {name for name, *_ in registry.collect()}
    assert {re.sub(r"_bucket$", "", name) for name in asked} <= told


def test_text_is_escaped_and_numbers_keep_their_digits() -> None:
    registry = MetricRegistry()
    registry.counter("c", "Help.", "name").child('a"b\\c\nd').value = 123456789.0
    registry.histogram("h", "Help.").child().observe(0.02)
    text = render(registry.collect())
    assert 'c{name="a\\"b\\\\c\\nd"} 123456789' in text
    assert 'h_bucket{le="0.01"} 0\n' in text
    assert 'h_bucket{le="0.025"} 1\n' in text
    assert "h_sum 0.02\nh_count 1\n" in text
