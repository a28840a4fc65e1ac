"""The fast tier: tests that start no process, for `./dev test --fast`."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FAST = (
    "core", "formats", "store", "controller", "test_settings.py", "test_words.py", "frontend/http", "frontend/models",
    "worker/backends", "worker/hardware", "cli/client", "cli/display",
    "artifacts/content", "artifacts/disk", "artifacts/galleries", "artifacts/net", "artifacts/oci",
)  # fmt: skip
SERVERS = {"nats", "postgres", "postgres_url", "frontend", "node_tools", "real_registry"}
"""Fixtures that start a process."""
MARKED = ("processes", "postgres", "registry", "browser", "netns")
STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}


def is_fast(item: pytest.Item) -> bool:
    path = item.path.relative_to(ROOT).as_posix()
    return (
        path.startswith(FAST)
        and SERVERS.isdisjoint(getattr(item, "fixturenames", ()))
        and "postgresql" not in item.nodeid
        and not any(item.get_closest_marker(marker) for marker in MARKED)
    )


def refuse_processes() -> None:
    """For the rest of this process."""

    def watch(event: str, _arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            pytest.fail("starts a process, which tests of the fast tier do not: mark it with `processes`")

    sys.addaudithook(watch)
