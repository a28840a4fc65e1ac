"""What runs of each model, and what is wanted of it, in words."""

from typing import Any

from corral.cli.client import Api, clean
from corral.cli.loading import loading_line

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


def notes(running: Running) -> list[str]:
    """What stands between what runs and what is wanted: loads under way, waiting or failed, replicas that are away."""
    told = [_load_note(load, more=bool(running["ready"])) for load in running["loads"]]
    told += [_replica_note(one) for one in running["replicas"] if one["state"] in ("away", "failed")]
    missing = _least(running) - running["ready"]
    if missing > 0 and not told:
        told = [f"{missing} more {'is' if missing == 1 else 'are'} wanted and will be loaded in a moment"]
    return list(dict.fromkeys(told))


def _load_note(load: dict[str, Any], *, more: bool) -> str:
    again = f" (tried again from {load['next_attempt_at'][11:19]} UTC on)" if load.get("next_attempt_at") else ""
    if load.get("error"):
        return f"{clean(load['error'])}{again}"
    if load["state"] == "pending" and load.get("reason"):
        return f"{clean(load['reason'])}{again}"
    return loading_line("another" if more else "it", load)


def _replica_note(replica: dict[str, Any]) -> str:
    why = f": {clean(replica['reason'])}" if replica.get("reason") else ""
    return f"the one on {clean(replica['node'])} is {replica['state']}{why}"


def _least(running: Running) -> int:
    wanted = running.get("wanted")
    return int(wanted["min_replicas"]) if wanted else 0


def is_as_wanted(running: Running) -> bool:
    """Nothing failed or waits, and as many replicas are ready as are wanted at least."""
    return not problems(running) and running["ready"] >= _least(running)
