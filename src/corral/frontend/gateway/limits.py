"""How much, and how long."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    body_bytes: int = 32 << 20
    bodies_bytes: int = 1 << 30
    """Of all requests together."""
    per_replica: int = 512
    """Open requests at one replica, on all frontends, where its own capacity is not known."""
    queue: int = 1000
    """Requests in line for one model."""
    queue_wait_s: float = 60.0
    load_wait_s: float = 60.0
    silence_s: float = 600.0
    """How long a replica may send nothing."""
    probe_after_s: float = 10.0
    """How long until a silent replica is asked for a sign of life."""
    lifeless_s: float = 60.0
    """How long a replica that gives none keeps the answers it has begun. It may only be very busy."""
    body_within_s: float = 120.0
    show_node: bool = False
    """To everyone; Corral's own clients are told anyway."""
