"""The guide names the kinds of events that a frontend sends, and where their rows are shown."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"


def test_the_guide_names_every_kind_of_events_and_its_route(frontend: Any) -> None:
    section = GUIDE.read_text().partition("### Follow changes")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(/\S+)` \|$", section, re.MULTILINE))
    answer = frontend.admin.call("GET", "/api/events?kinds=nonsense")
    assert answer.status == 400, answer.body
    kinds = answer.message.partition("; the kinds are ")[2].split(", ")
    assert sorted(rows) == sorted(kinds)
    for route in rows.values():
        assert frontend.admin.call("GET", route).status == 200, route
