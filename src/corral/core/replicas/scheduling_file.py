"""The scheduling file that is read at start, in LocalAI's format: a list of maps. `replicas: all` means one replica on
every matching node."""

from collections.abc import Mapping
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.replicas.scaling import Scheduling, check_prefix_match

_KNOWN: Mapping[str, tuple[type, ...]] = {
    "model_name": (str,),
    "min_replicas": (int,),
    "max_replicas": (int,),
    "spread_all": (bool,),
    "route_policy": (str,),
    "balance_abs_threshold": (int,),
    "balance_rel_threshold": (int, float),
    "min_prefix_match": (int, float),
}


def parse_seed(document: Any, *, source: str) -> list[Scheduling]:
    if document is None:
        return []
    if not isinstance(document, list):
        raise InvalidInput(f"{source} is not a list; write for example [{{model_name: tiny, min_replicas: 2}}]")
    return [_entry(item, f"{source}[{at}]") for at, item in enumerate(document)]


def _entry(item: Any, where: str) -> Scheduling:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"{where} is not a map; it needs fields such as model_name and min_replicas")
    for name, kinds in _KNOWN.items():
        value = item.get(name)
        if value is not None and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise InvalidInput(f"{where}.{name} has a value of the wrong type: {value!r}")
    selector = item.get("node_selector") or {}
    if not isinstance(selector, Mapping):
        raise InvalidInput(f"{where}.node_selector is not a map of labels")
    spread = _replicas(item.get("replicas"), where) or bool(item.get("spread_all"))
    try:
        check_prefix_match(item.get("min_prefix_match"))
        return Scheduling(
            model=item.get("model_name") or "",
            selector={str(key): str(value) for key, value in selector.items()},
            min_replicas=item.get("min_replicas") or 0,
            max_replicas=item.get("max_replicas") or 0,
            spread_all=spread,
            route_policy=item.get("route_policy") or "",
            balance_abs_threshold=item.get("balance_abs_threshold") or 0,
            balance_rel_threshold=float(item.get("balance_rel_threshold") or 0),
        )
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None


def _replicas(value: Any, where: str) -> bool:
    """`all` or true spreads; numbers are rejected."""
    if value is None or value is False or value in ("", "auto", "false"):
        return False
    if (value in (True, "all", "true") and not isinstance(value, int | float)) or value is True:
        return True
    raise InvalidInput(f"{where}.replicas is {value!r}; write `all` or `auto` here, and numbers in min_replicas")
