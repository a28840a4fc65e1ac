"""The replicas and loads of a model, and its desired replicas, in words."""

from typing import Any

from corral.cli.client.api import Api
from corral.cli.display.output import clean
from corral.core.causes import brief_cause, without_stop

Running = dict[str, Any]
NOTHING: Running = {"ready": 0, "replicas": [], "loads": []}
LOADING_WORDS = {
    "pending": "waiting for capacity",
    "installing": "installing its backend",
    "staging": "downloading weights",
    "loading": "loading into memory",
}


def loading_line(model: str, what: dict[str, Any]) -> str:
    """The progress of a load: `loading smollm2 on w3: downloading weights, 40 %, about 12 s left`."""
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
    return f"loading {clean(model)}{where}: {', '.join(parts)}"


def read_running(api: Api) -> dict[str, Running]:
    """By model name; models without replicas, loads or desired replicas are left out."""
    found: dict[str, Running] = api.call("GET", "api", "replicas", "summary")
    return found


def desired_words(running: Running) -> str:
    desired = running.get("desired")
    if desired is None:
        return "on demand"
    if desired["spread_all"]:
        return "one per node"
    low, high = desired["min_replicas"], desired["max_replicas"]
    if low == high:
        return str(low) if low else "on demand"
    return f"{low}-{high}" if high else f"{low} or more"


def state_words(running: Running) -> str:
    """`ready`, `loading, 40 %`, `pending`, `failed`, or several of them."""
    parts = ["ready"] if running["ready"] else []
    loads: dict[str, int] = {}
    for load in running["loads"]:
        loads[load["state"]] = loads.get(load["state"], 0) + 1
    parts += [f"{count} {state}" if count > 1 else state for state, count in loads.items()]
    stopping = sum(replica["state"] in ("draining", "stopping") for replica in running["replicas"])
    parts += [f"{stopping} stopping"] if stopping else []
    return ", ".join(parts) or "not loaded"


def places(running: Running) -> str:
    return ", ".join(f"{clean(one['node'])} (slot {one['slot']}, {one['state']})" for one in running["replicas"])


def problems(running: Running) -> list[str]:
    """Why loads wait or failed, each reason once. Loads in progress are left out."""
    return list(dict.fromkeys(why for load in running["loads"] if (why := _obstacle(load))))


def notes(running: Running, *, told: str = "") -> list[str]:
    """What differs from the desired replicas: loads in progress, waiting or failed, and replicas offline or failed.
    `told`: a sentence beside them, whose reason is not repeated."""
    found = _load_notes(running["loads"], more=bool(running["ready"]), told=told)
    found += [_replica_note(one) for one in running["replicas"] if one["state"] in ("offline", "failed")]
    missing = _minimum(running) - running["ready"]
    if _matches_no_node(running):
        found.append("no healthy node matches its selector")
    elif missing > 0 and not found:
        found = [f"{missing} more {'replica' if missing == 1 else 'replicas'} will be loaded shortly"]
    return list(dict.fromkeys(found))


def _load_notes(loads: list[dict[str, Any]], *, more: bool, told: str) -> list[str]:
    """Each obstacle once, with the time of the next attempt."""
    blocked: dict[str, list[str]] = {}
    in_progress = []
    for load in loads:
        if why := _obstacle(load):
            blocked.setdefault(why, []).extend(filter(None, [load.get("next_attempt_at")]))
        else:
            in_progress.append(loading_line("another replica" if more else "it", load))
    return [*in_progress, *filter(None, (_blocked_note(why, times, told) for why, times in blocked.items()))]


def _blocked_note(why: str, times: list[str], told: str) -> str:
    at = f"next attempt at {min(times)[11:19]} UTC" if times else ""
    if without_stop(brief_cause(why)) in told:
        return at
    return f"{without_stop(why)} ({at})" if at else why


def _obstacle(load: dict[str, Any]) -> str:
    return clean(load.get("error") or (load["state"] == "pending" and load.get("reason")) or "")


def _replica_note(replica: dict[str, Any]) -> str:
    why = f": {clean(replica['reason'])}" if replica.get("reason") else ""
    state = replica["state"]
    return f"the replica on {clean(replica['node'])} is {state}{why}"


def _minimum(running: Running) -> int:
    desired = running.get("desired")
    if not desired:
        return 0
    return int(desired.get("nodes", 0) if desired.get("spread_all") else desired["min_replicas"])


def _matches_no_node(running: Running) -> bool:
    desired = running.get("desired") or {}
    return bool(desired.get("spread_all")) and desired.get("nodes") == 0


def is_as_desired(running: Running) -> bool:
    """Whether no load failed or waits, and at least the minimum of replicas is ready."""
    return not problems(running) and not _matches_no_node(running) and running["ready"] >= _minimum(running)
