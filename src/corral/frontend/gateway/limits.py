"""The gateway's limits on requests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    body_bytes: int = 32 << 20
    bodies_bytes: int = 1 << 30
    """Of all request bodies together that are being received."""
    per_replica: int = 512
    """Open requests at one replica, on all frontends, if its own capacity is unknown."""
    queue: int = 1000
    """Requests that may wait for one model."""
    queue_wait_s: float = 60.0
    load_wait_s: float = 60.0
    load_notice_s: float | None = None
    """How often streaming clients get a comment while they wait for a load; None for never."""
    stop_wait_s: float = 30.0
    """How long open requests may go on after the frontend was told to stop."""
    silence_s: float = 600.0
    """How long a replica may send nothing before the request fails."""
    probe_after_s: float = 10.0
    """How long a replica may send nothing before it is probed."""
    probe_within_s: float = 3.0
    probe_every_s: float = 1.0
    """How long after a failed probe the next one follows."""
    unresponsive_s: float = 60.0
    """How long a replica may fail its probes before answers that it has begun are broken off. It may just be busy."""
    body_within_s: float = 120.0
    cors_origin: str = ""
    """The origin of web pages that may call the client APIs; `*` for all of them, empty for none."""
    show_node: bool = False
    """Whether every client gets the node headers. Corral's own clients always do."""
