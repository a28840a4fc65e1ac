"""Attached endpoints: servers that already run, which Corral sends requests to but neither starts nor stops."""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from corral.core.errors import InvalidInput

URL_MAX_CHARS = 500
KEY_MAX_CHARS = 4096
CA_MAX_CHARS = 256 * 1024
MODEL_MAX_CHARS = 300
LIMIT_DEFAULT = 32
LIMIT_MAX = 100_000
WEIGHT_DEFAULT = 1
WEIGHT_MAX = 1000
ENDPOINTS_MAX = 64
"""For each model."""
MODELS_SHOWN = 5
FAILURES_MAX = 3
"""So many failed probes in a row, and an endpoint gets no requests until one succeeds."""
MESSAGES_PATHS = frozenset({"/v1/messages", "/v1/messages/count_tokens"})
NATIVE_PATHS = (*sorted(MESSAGES_PATHS), "/v1/responses")
"""Paths of client APIs that are translated for servers that do not have them. All others are relayed anyway."""
HOPS_HEADER = "x-corral-hops"
"""In requests to attached servers: the ids of the attached endpoints that led there."""
FRONTEND_HEADER = "x-corral-frontend"
"""In answers to health probes: which frontend of Corral gives them."""
HOPS_MAX = 16
_PIN = re.compile(r"[0-9a-f]{64}")
_API_PATHS = ("/chat/completions", "/completions", "/messages", "/embeddings", "/models", "/responses")


class UpstreamProtocol(StrEnum):
    """The API that an attached server speaks."""

    OPENAI = "openai"
    OLLAMA = "ollama"
    """Used through the OpenAI API that Ollama has below `/v1`."""
    ANTHROPIC = "anthropic"


class EndpointState(StrEnum):
    ATTACHED = "attached"
    DRAINING = "draining"
    """Detached; its open requests are being finished."""


class EndpointHealth(StrEnum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """It gets no requests."""


@dataclass(frozen=True, slots=True)
class ServerTrust:
    """How the certificate of a server is checked. Without either, by the system's certificate authorities."""

    ca_pem: str = ""
    """The only certificate authorities that it may come from."""
    pin: str = ""
    """The SHA-256 of the certificate, as hexadecimal digits. With a pin, its name and its issuer are not checked unless
    there is a CA too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUrl:
    """The base of an attached server's API."""

    is_tls: bool
    host: str
    port: int
    path: str
    """Of the API: what stands in place of Corral's own `/v1`. It does not end with a slash."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """As the `Host` header has it: without the scheme's own port."""
        is_usual = self.port == (443 if self.is_tls else 80)
        return self.address.rpartition(":")[0] if is_usual else self.address

    @property
    def text(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}{self.path}"


@lru_cache(maxsize=1024)
def parse_server_url(text: str) -> ServerUrl:
    """Raises InvalidInput."""
    example = "for example http://10.0.0.5:8000/v1"
    if (
        len(text) > URL_MAX_CHARS
        or not text.isascii()
        or not text.isprintable()
        or any(c in text for c in ' "<>\\^`{|}')
    ):
        raise InvalidInput(f"the URL must be at most {URL_MAX_CHARS} printable ASCII characters, {example}")
    try:
        parts = urlsplit(text)
        port = parts.port
        (parts.hostname or "").encode("idna")  # raises UnicodeError, a ValueError, for a name that no host can have
    except ValueError:
        raise InvalidInput(f"{text!r} is not a URL, {example}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{text!r} is not the URL of an HTTP server, {example}")
    if parts.username is not None or parts.password is not None:
        # Not repeated in the message: it holds a secret.
        raise InvalidInput("the URL must not have a user name or a password; give the key with --api-key-file")
    if parts.query or parts.fragment:
        raise InvalidInput(f"the URL must not have a query or a fragment, {example}")
    path = parts.path.rstrip("/")
    if any(path.endswith(ending) for ending in _API_PATHS):
        raise InvalidInput(
            f"{text!r} names one path of the API; give the base that all paths have in common, {example}"
        )
    is_tls = parts.scheme == "https"
    if port == 0:
        raise InvalidInput(f"{text!r} has the port 0, {example}")
    return ServerUrl(is_tls=is_tls, host=parts.hostname, port=port or (443 if is_tls else 80), path=path or "/v1")


def check_pin(text: str) -> str:
    """The pin in its usual form. Raises InvalidInput."""
    pin = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if pin and not _PIN.fullmatch(pin):
        raise InvalidInput("the pin must be the SHA-256 of the server's certificate, as 64 hexadecimal digits")
    return pin


def check_trust(url: ServerUrl, trust: ServerTrust) -> None:
    """Raises InvalidInput for settings that would have no effect."""
    if not url.is_tls and (trust.ca_pem or trust.pin):
        raise InvalidInput("a CA or a pin is for a URL that begins with https://; this one is not encrypted")


def check_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths that a server has itself, in their usual form. Raises InvalidInput."""
    given = {path.strip().rstrip("/") for path in paths} - {""}
    if wrong := sorted(given - set(NATIVE_PATHS)):
        raise InvalidInput(
            f"{wrong[0][:200]!r} is not a path that can be relayed or translated; these are: {', '.join(NATIVE_PATHS)}."
            " All other paths of the server are used as they are."
        )
    return tuple(path for path in NATIVE_PATHS if path in given)


def check_abilities(endpoint: "AttachedEndpoint") -> None:
    """Raises InvalidInput for settings that would have no effect."""
    if endpoint.protocol is UpstreamProtocol.ANTHROPIC and (endpoint.endpoints or endpoint.continuation):
        raise InvalidInput(
            "endpoints and continuation are for servers of OpenAI's API. A server of Anthropic's API gets"
            f" {' and '.join(sorted(MESSAGES_PATHS))} unchanged, and continues no answer; leave both empty."
        )


def check_api_key(key: str) -> str:
    """Raises InvalidInput, without the key."""
    key = key.strip()
    if len(key) > KEY_MAX_CHARS or not key.isascii() or any(not 0x21 <= ord(char) <= 0x7E for char in key):
        raise InvalidInput(f"the API key must be one line of at most {KEY_MAX_CHARS} printable ASCII characters")
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedServer:
    """What the gateway must know of an attached server, besides what it knows of every replica."""

    url: ServerUrl
    protocol: UpstreamProtocol = UpstreamProtocol.OPENAI
    model: str = ""
    """The model's name there; empty where it is the same."""
    trust: ServerTrust = ServerTrust()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedEndpoint:
    """A stored endpoint."""

    id: str
    model: str
    url: str
    upstream_model: str = ""
    """The model's name at the server; empty where it is the same."""
    protocol: UpstreamProtocol = UpstreamProtocol.OPENAI
    endpoints: tuple[str, ...] = ()
    """Of NATIVE_PATHS, those that the server has itself. A server of Anthropic's API has `MESSAGES_PATHS` anyway."""
    continuation: str = ""
    """How it continues an answer that another one began, as a replica's; empty if it cannot."""
    api_key: str = field(default="", repr=False)
    trust: ServerTrust = ServerTrust()
    capacity: int = LIMIT_DEFAULT
    """Requests that may be open at it."""
    weight: int = WEIGHT_DEFAULT
    """Its share of the requests, relative to the model's other replicas, which have 1."""
    state: EndpointState = EndpointState.ATTACHED
    health: EndpointHealth = EndpointHealth.UNHEALTHY
    reason: str = ""
    """What the latest probe found, unless it was as it should be."""
    generation: int = 0
    last_used: int = 0
    created_at: int = 0
    created_by: str = ""
    changed_at: int = 0

    @property
    def server(self) -> ServerUrl:
        return parse_server_url(self.url)

    @property
    def is_routed(self) -> bool:
        return self.state is EndpointState.ATTACHED and self.health is EndpointHealth.HEALTHY

    @property
    def probe_headers(self) -> dict[str, str]:
        """They hold the key, so they go to this server only."""
        if self.protocol is UpstreamProtocol.ANTHROPIC:
            key = {"x-api-key": self.api_key} if self.api_key else {}
            return {"anthropic-version": ANTHROPIC_VERSION, **key}
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


ANTHROPIC_VERSION = "2023-06-01"
SETTINGS = (
    "upstream_model", "protocol", "endpoints", "continuation", "api_key", "ca_pem", "pin", "capacity", "weight",
)  # fmt: skip
"""Those that an endpoint keeps when it is attached again without them."""


def find_attached(
    endpoints: Sequence[AttachedEndpoint], given: AttachedEndpoint, *, absent: Collection[str]
) -> AttachedEndpoint | None:
    """Which of a model's endpoints `given` changes. `absent`: the SETTINGS that are not given. Raises InvalidInput."""
    same = [one for one in endpoints if one.state is EndpointState.ATTACHED and one.server == given.server]
    if "upstream_model" not in absent or len(same) > 1:
        named = next((one for one in same if one.upstream_model == given.upstream_model), None)
        if named is None and "upstream_model" in absent:
            names = ", ".join(repr(one.upstream_model) for one in same)
            raise InvalidInput(f"{given.url} is attached several times; say which one with the upstream model: {names}")
        return named
    return same[0] if same else None


def keep_settings(
    given: AttachedEndpoint, before: AttachedEndpoint | None, *, absent: Collection[str]
) -> AttachedEndpoint:
    """`given` with the settings of `before` that are absent."""
    if before is None:
        return given
    kept = {name: getattr(before, name) for name in SETTINGS if name in absent and name not in ("ca_pem", "pin")}
    trust = ServerTrust(
        ca_pem=before.trust.ca_pem if "ca_pem" in absent else given.trust.ca_pem,
        pin=before.trust.pin if "pin" in absent else given.trust.pin,
    )
    return replace(given, trust=trust, **kept)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one health probe found."""

    is_well: bool
    reason: str = ""
    models: frozenset[str] = frozenset()
    """The models that the server lists; empty if it has no list."""
    frontend: str = ""
    """The mark of the frontend, if the server is one of Corral's."""


def frontend_mark(frontend: str) -> str:
    """What a frontend shows of its id to whoever probes it."""
    return hashlib.sha256(frontend.encode()).hexdigest()[:16]


def check_not_own(endpoint: AttachedEndpoint, probe: ProbeResult, frontends: Collection[str]) -> None:
    """`frontends`: the ids of this cluster's. Raises InvalidInput for an address of one of them."""
    if probe.frontend and probe.frontend in map(frontend_mark, frontends):
        raise InvalidInput(
            f"{endpoint.url} is an address of this cluster itself: each request would come back to it. Use a route"
            " (`corral routes set`) or an alias to give a model another name."
        )


def judge_probe(status: int, models: frozenset[str] = frozenset()) -> ProbeResult:
    """What the answer to a request for the server's list of models means."""
    if status == 401:
        return ProbeResult(is_well=False, reason="it rejected the API key (status 401)")
    if 300 <= status < 400:
        return ProbeResult(
            is_well=False, reason=f"it redirects to another address (status {status}), which is not followed"
        )
    if status >= 500:
        return ProbeResult(is_well=False, reason=f"it answered the health probe with status {status}")
    # It answers. 403: the key may not list models. 404 and 405: the server has no list. 429: it is busy.
    return ProbeResult(is_well=True, models=models)


def warn_of_models(endpoint: AttachedEndpoint, models: frozenset[str]) -> list[str]:
    """Not an error: servers may know more names than they list."""
    name = endpoint.upstream_model or endpoint.model
    if not models or name in models or f"{name}:latest" in models:
        return []
    shown = ", ".join(sorted(models)[:MODELS_SHOWN])
    more = f" and {len(models) - MODELS_SHOWN} more" if len(models) > MODELS_SHOWN else ""
    return [f"the server does not list {name!r}; it lists {shown}{more}. Give its own name with --upstream-model."]


@dataclass(frozen=True, slots=True)
class ProbeRecord:
    health: EndpointHealth
    reason: str = ""
    failures: int = 0
    """Failed probes in a row."""


def plan_health(before: ProbeRecord, probe: ProbeResult) -> ProbeRecord:
    if probe.is_well:
        return ProbeRecord(EndpointHealth.HEALTHY, probe.reason)
    failures = before.failures + 1
    if before.health is EndpointHealth.HEALTHY and failures < FAILURES_MAX:
        return replace(before, failures=failures)
    return ProbeRecord(EndpointHealth.UNHEALTHY, probe.reason, failures)


NOT_STARTED = "only attached endpoints serve it, and nothing is started for it"


def describe_away(endpoints: Sequence[AttachedEndpoint]) -> str:
    """Why none of a model's endpoints serves, as a clause for clients. It has no URL: those are for administrators."""
    attached = [one for one in endpoints if one.state is EndpointState.ATTACHED]
    if not attached:
        return "no endpoint is attached to it"
    return "none of its attached endpoints answers health probes"


def is_drained(*, open_requests: int, draining_ms: int, settle_ms: int, drain_ms: int) -> bool:
    """Whether a detached endpoint can be forgotten. `settle_ms`: until all frontends know that it is detached, and have
    told how many requests they still have there."""
    return draining_ms >= drain_ms or (draining_ms >= settle_ms and open_requests == 0)
