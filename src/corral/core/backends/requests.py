"""What a person can request of the fleet."""

from dataclasses import dataclass, field

from corral.core.backends.policies import OnDrift
from corral.core.backends.rollouts import RolloutRequest
from corral.core.nodes.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedInstall:
    reference: str = ""
    """A gallery entry: `name` or `gallery@name`, each also with `@version`."""
    uri: str = ""
    """A source outside the galleries; `name` is then the backend's name."""
    name: str = ""
    alias: str = ""
    galleries: str = ""
    """JSON text: galleries to look the name up in, instead of the configured ones."""
    force: bool = False
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    on_drift: OnDrift | None = None
    version: str = ""
    """A version, or the beginning of a digest, to pin. Empty: as pinned before, or the newest."""
    rollout: RolloutRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedUpgrade:
    reference: str
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    unpin: bool = False
    """Upgrade pinned nodes too, and let them follow the galleries again."""
    rollout: RolloutRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedDelete:
    reference: str
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedRollback:
    reference: str
    to: str | None = None
    """A version, or the beginning of a digest. None means the previous version."""
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    reason: str = ""
    """Why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPin:
    reference: str
    version: str
    """A version, or the beginning of a digest."""
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    reason: str = ""
    """Why, for people."""
    rollout: RolloutRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedFollow:
    reference: str
    target: Target = field(default_factory=Target)
    scoped_to: str | None = None
    reason: str = ""
    """Why, for people."""
