"""What runs of each model, and what is wanted of it, in words."""

from typing import Any

from corral.cli.client.api import Api, clean
from corral.cli.display.loading import loading_line

Running = dict[str, Any]
NOTHING: Running = {"ready": 0, "replicas": [], "loads": []}


def read_running(api: Api) -> dict[str, Running]:
    """By model; one that neither runs nor is wanted is left out."""
    found: dict[str, Running] = api.call("GET", "api", "replicas", "summary")
    return found


def wanted_words(running: Running) -> str:
    wanted = running.get("desired")
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
    return list(dict.fromkeys(why for load in running["loads"] if (why := _obstacle(load))))


def notes(running: Running) -> list[str]:
    """What stands between what runs and what is wanted: loads under way, waiting or failed, replicas that are away."""
    told = _load_notes(running["loads"], more=bool(running["ready"]))
    told += [_replica_note(one) for one in running["replicas"] if one["state"] in ("away", "failed")]
    missing = _least(running) - running["ready"]
    if _is_for_nobody(running):
        told.append("it is wanted on every machine that its selector fits, and no healthy one is such")
    elif missing > 0 and not told:
        told = [f"{missing} more {'is' if missing == 1 else 'are'} wanted and will be loaded in a moment"]
    return list(dict.fromkeys(told))


def _load_notes(loads: list[dict[str, Any]], *, more: bool) -> list[str]:
    """What stands in the way of several is said once, with when the first of them is tried again."""
    stuck: dict[str, list[str]] = {}
    moving = []
    for load in loads:
        if why := _obstacle(load):
            stuck.setdefault(why, []).extend(filter(None, [load.get("next_attempt_at")]))
        else:
            moving.append(loading_line("another" if more else "it", load))
    return [*moving, *(f"{why}{_again(times)}" for why, times in stuck.items())]


def _obstacle(load: dict[str, Any]) -> str:
    return clean(load.get("error") or (load["state"] == "pending" and load.get("reason")) or "")


def _again(times: list[str]) -> str:
    return f" (tried again from {min(times)[11:19]} UTC on)" if times else ""


def _replica_note(replica: dict[str, Any]) -> str:
    why = f": {clean(replica['reason'])}" if replica.get("reason") else ""
    return f"the one on {clean(replica['node'])} is {replica['state']}{why}"


def _least(running: Running) -> int:
    wanted = running.get("desired")
    if not wanted:
        return 0
    return int(wanted.get("nodes", 0) if wanted.get("spread_all") else wanted["min_replicas"])


def _is_for_nobody(running: Running) -> bool:
    wanted = running.get("desired") or {}
    return bool(wanted.get("spread_all")) and wanted.get("nodes") == 0


def is_as_wanted(running: Running) -> bool:
    """Nothing failed or waits, and as many replicas are ready as are wanted at least."""
    return not problems(running) and not _is_for_nobody(running) and running["ready"] >= _least(running)
