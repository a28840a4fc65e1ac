"""How far a load is, in words."""

from typing import Any

from corral.cli.client.api import clean

LOADING_WORDS = {
    "pending": "waiting for a place",
    "installing": "installing its backend",
    "staging": "fetching weights",
    "loading": "loading into memory",
}


def loading_line(model: str, what: dict[str, Any]) -> str:
    """What is waited for: `smollm2 is being loaded on w3: fetching weights, 40 %, about 12 s left`."""
    progress, state = what.get("progress"), str(what.get("state", "loading"))
    parts = [LOADING_WORDS.get(state) or clean(state)]
    if progress:
        parts.append(f"{float(progress):.0f} %")
    if what.get("state") == "staging" and what.get("file_index") and what.get("total_files", 0) > 1:
        parts.append(f"file {what['file_index']} of {what['total_files']}")
    if what.get("eta_seconds"):
        parts.append(f"about {float(what['eta_seconds']):.0f} s left")
    if what.get("reason"):
        parts.append(clean(" ".join(str(what["reason"]).split())))
    where = f" on {clean(str(what['node']))}" if what.get("node") else ""
    return f"{clean(model)} is being loaded{where}: {', '.join(parts)}"
