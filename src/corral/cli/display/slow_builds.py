"""CPU builds on nodes with an accelerator, as lines of text."""

from typing import Any

from corral.cli.client.api import Api


def read_slow_builds(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.call("GET", "api", "fleet", "slow-builds")
    return found


def slow_line(slow: dict[str, Any]) -> str:
    return f"{slow['reason']}: {slow['remedy']}"
