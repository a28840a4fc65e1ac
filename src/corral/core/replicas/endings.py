"""Ends the replicas of a deleted or disabled model: open requests may finish within a limit, new ones are rejected."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from corral.core.replicas.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan_ending(replicas: Iterable[Replica], *, in_flight: Callable[[str], int], now_ms: int, within_ms: int) -> Ending:
    """A draining replica is stopped when it is idle, or after `within_ms`."""
    drain, stop = [], []
    for replica in replicas:
        match replica.state:
            case ReplicaState.STOPPING:
                continue
            case ReplicaState.READY:
                drain.append(replica.id)
            case ReplicaState.DRAINING if in_flight(replica.id) and now_ms - replica.changed_at < within_ms:
                continue
            case _:
                stop.append(replica.id)
    return Ending(drain=tuple(drain), stop=tuple(stop))
