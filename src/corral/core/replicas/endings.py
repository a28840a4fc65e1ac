"""How the replicas of a model end that is not served any more: what is being answered may be finished, for a while;
nothing new comes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from corral.core.replicas.replica import Replica, ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()


def plan_ending(replicas: Iterable[Replica], *, in_flight: Callable[[str], int], now_ms: int, within_ms: int) -> Ending:
    """One that drains is stopped when it is idle, and after `within_ms` whatever its streams do."""
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
