"""What the first page costs, and that it comes from nowhere but here."""

import gzip
import re
from pathlib import Path

INITIAL_SCRIPTS_LIMIT_BYTES = 250_000


def initial_scripts(static: Path) -> list[Path]:
    index = (static / "index.html").read_text()
    found = re.findall(r'<script[^>]+src="\./([^"]+)"|<link rel="modulepreload"[^>]+href="\./([^"]+)"', index)
    return [static / (script or preload) for script, preload in found]


def test_the_first_page_loads_less_than_250_kilobytes_of_compressed_scripts(static: Path) -> None:
    scripts = initial_scripts(static)
    assert len(scripts) >= 2
    size_bytes = sum(len(gzip.compress(script.read_bytes())) for script in scripts)
    assert size_bytes < INITIAL_SCRIPTS_LIMIT_BYTES


def test_pages_and_styles_name_no_other_server(static: Path) -> None:
    for path in [static / "index.html", *static.glob("assets/*.css")]:
        assert re.findall(r"(?:https?:)?//[a-z0-9.-]+", path.read_text()) == []


def test_the_lock_names_versions_and_hashes_but_no_download_address() -> None:
    lock = (Path(__file__).parents[2] / "ui" / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "://" not in lock
    assert '"integrity": "sha512-' in lock
