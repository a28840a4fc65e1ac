"""What runs of each model, and what is wanted of it, in words."""

from typing import Any

from corral.cli.client import Api, clean

Running = dict[str, Any]
NOTHING: Running = {"ready": 0, "replicas": [], "loads": []}


def read_running(api: Api) -> dict[str, Running]:
    """By model; one that neither runs nor is wanted is left out."""
    found: dict[str, Running] = api.call("GET", "api", "replicas", "summary")
    return found


def wanted_words(running: Running) -> str:
    wanted = running.get("wanted")
    if wanted is None:
        return "by request"
    if wanted["spread_all"]:
        return "one per node"
    low, high = wanted["min_replicas"], wanted["max_replicas"]
    if low == high:
        return str(low) if low else "by request"
    return f"{low}-{high}" if high else f"{low} or more"


def state_words(running: Running) -> str:
    """`ready`, `loading, 40 %`, `pending`, `failed`; several joined."""
    parts = ["ready"] if running["ready"] else []
    loads: dict[str, int] = {}
    for load in running["loads"]:
        loads[load["state"]] = loads.get(load["state"], 0) + 1
    parts += [f"{count} {state}" if count > 1 else state for state, count in loads.items()]
    leaving = sum(replica["state"] in ("draining", "stopping") for replica in running["replicas"])
    parts += [f"{leaving} stopping"] if leaving else []
    return ", ".join(parts) or "not loaded"


def places(running: Running) -> str:
    return ", ".join(f"{clean(one['node'])} (slot {one['slot']}, {one['state']})" for one in running["replicas"])


def problems(running: Running) -> list[str]:
    """Why loads wait or failed, each reason once. One under way tells with its reason what it does."""
    told = (load.get("error") or (load["state"] == "pending" and load.get("reason")) for load in running["loads"])
    return list(dict.fromkeys(clean(why) for why in told if why))


def is_as_wanted(running: Running) -> bool:
    """Nothing failed or waits, and as many replicas are ready as are wanted at least."""
    wanted = running.get("wanted")
    return not problems(running) and running["ready"] >= (wanted["min_replicas"] if wanted else 0)
