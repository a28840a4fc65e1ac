"""Which clients may call which routes. Every route needs an admin key unless a rule opens it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import urlsplit

from corral.core.errors import Forbidden, Unauthenticated
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.snapshots import Snapshot
from corral.settings.values import is_loopback_host
from corral.store.access.api_keys import AccessStore, ApiKey, Scope, hash_secret
from corral.system import Clock

SESSION_COOKIE = "corral_session"
CLIENT_HEADER = "x-corral-client"
NAMING = ("host", "origin")
"""Headers in which a browser states the host it calls, and the page it calls for."""
CACHED_S = 2.0
CACHED_MAX = 4096
READ_ALL_EVERY_S = 1.0
KEY, SESSION = "key", "session"


class Access(IntEnum):
    PUBLIC = 0
    NODE = 1
    """The route itself checks the node's credential."""
    USER = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Rule:
    path: str
    """Exact, or a prefix when it ends with `/`."""
    access: Access
    methods: frozenset[str] = frozenset()
    """Empty means every method."""


_READ = frozenset({"GET", "HEAD"})

RULES: tuple[Rule, ...] = (
    Rule("/healthz", Access.PUBLIC, _READ),
    Rule("/readyz", Access.PUBLIC, _READ),
    Rule("/docs/clients", Access.PUBLIC, _READ),
    Rule("/docs/clients.json", Access.PUBLIC, _READ),
    Rule("/api/session", Access.PUBLIC),
    Rule("/api/node/", Access.NODE),
    Rule("/v1/", Access.USER),
)
"""The first matching rule decides; without one, the route is for administrators."""


def access_for(method: str, path: str) -> Access:
    for rule in RULES:
        matches = path.startswith(rule.path) if rule.path.endswith("/") else path == rule.path
        if matches and (not rule.methods or method in rule.methods):
            return rule.access
    return Access.ADMIN


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    scope: Scope
    key_id: str | None = None
    by_cookie: bool = False

    @property
    def actor(self) -> str:
        return f"key {self.name}" if self.key_id else self.name


def _host_of(location: str) -> str:
    try:
        return urlsplit(location).hostname or ""
    except ValueError:
        return ""


ANYONE = Principal("anyone (no-auth)", Scope.ADMIN)


class Authorizer:
    """Keys are cached from the store for two seconds, so a revoked key is rejected everywhere after that."""

    def __init__(
        self,
        store: AccessStore,
        brute_force: BruteForceGuard,
        *,
        clock: Clock,
        auth: bool,
        public: frozenset[str] = frozenset(),
        public_url: str = "",
    ) -> None:
        """`public`: further paths that anyone may read, by setting. `public_url`: the address of this frontend, besides
        loopback addresses."""
        self._store = store
        self._brute_force = brute_force
        self._clock = clock
        self._auth = auth
        self._public = public
        self._public_host = _host_of(public_url)
        self._cached: dict[str, tuple[float, ApiKey | None]] = {}
        self._resets = 0
        self._listeners: list[Callable[[ApiKey], None]] = []
        self._credentials = Snapshot(self._read_credentials, clock=clock, every_s=READ_ALL_EVERY_S)
        """For addresses with many wrong credentials: the store is read once a second at most."""

    async def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Principal | None:
        """Raises RateLimited when too many wrong credentials came from this address."""
        if not self._auth:
            return ANYONE
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and credential.strip():
            key = await self._find(KEY, hash_secret(credential.strip()), address)
            return Principal(key.name, key.scope, key.id) if key else None
        if SESSION_COOKIE in cookies:
            key = await self._find(SESSION, hash_secret(cookies[SESSION_COOKIE]), address)
            return Principal(key.name, key.scope, key.id, by_cookie=True) if key else None
        return None

    async def admit(
        self, method: str, path: str, headers: Mapping[str, str], cookies: Mapping[str, str], address: str
    ) -> Principal | None:
        """The client that calls, or None where the route needs no credential. Raises Unauthenticated, Forbidden or
        RateLimited."""
        access = access_for(method, path)
        if access <= Access.NODE or (path in self._public and method in _READ):
            return None
        self.check_page(headers)
        principal = await self.identify(headers, cookies, address)
        if principal is None:
            raise Unauthenticated(_describe_unknown(headers, cookies))
        if access is Access.ADMIN and principal.scope is not Scope.ADMIN:
            raise Forbidden(
                f"this route needs an admin key; the key {principal.name!r} has the scope {principal.scope}"
            )
        if principal.by_cookie and method not in ("GET", "HEAD") and CLIENT_HEADER not in headers:
            raise Forbidden(f"a browser session must send the header {CLIENT_HEADER} with every write request")
        return principal

    def check_page(self, headers: Mapping[str, str]) -> None:
        """Without keys, any web page could make its reader's browser call this frontend, by any host name that resolves
        to it. Only pages of this machine may."""
        if self._auth:
            return
        named = [f"//{headers[name]}" if name == "host" else headers[name] for name in NAMING if name in headers]
        if not all(self._is_own(_host_of(location)) for location in named):
            raise Forbidden(
                "without API keys (--no-auth), only requests from this machine are accepted; use a loopback"
                " address, or set the frontend's address with --public-url"
            )

    def _is_own(self, host: str) -> bool:
        return bool(host) and (is_loopback_host(host) or host == self._public_host)

    def listen(self, listener: Callable[[ApiKey], None]) -> None:
        """`listener` is called with every key that was changed or revoked through this process."""
        self._listeners.append(listener)

    def note_changed(self, key: ApiKey) -> None:
        """Applies a change made through this process immediately, also to other caches of keys."""
        self.forget()
        for listener in self._listeners:
            listener(key)

    def forget(self) -> None:
        """Empties the caches."""
        self._resets += 1
        self._cached.clear()
        self._credentials.forget()

    async def _find(self, kind: str, secret_hash: str, address: str) -> ApiKey | None:
        now_s = self._clock.monotonic_s()
        exhausted = self._brute_force.is_exhausted(address)
        known = self._cached.get(secret_hash)
        if known is not None and now_s - known[0] < CACHED_S:
            if known[1] is None and exhausted:  # below the limit, a repeated credential counts once in two seconds
                self._brute_force.record_wrong(address)
            return known[1]
        if exhausted:
            found = (await self._credentials.get())[kind].get(secret_hash)
            if found is None:
                self._brute_force.record_wrong(address)
            return found
        find = self._store.find_key if kind == KEY else self._store.find_session
        resets = self._resets
        found = await find(secret_hash)
        if len(self._cached) >= CACHED_MAX:
            self._cached.clear()
        if resets == self._resets:  # otherwise it may have been read before the change
            self._cached[secret_hash] = (now_s, found)
        if found is None:
            self._brute_force.record_wrong(address)
        return found

    async def _read_credentials(self) -> dict[str, Mapping[str, ApiKey]]:
        return {KEY: await self._store.read_active_keys(), SESSION: await self._store.read_sessions()}


def _describe_unknown(headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
    if headers.get("authorization"):
        return "the API key is unknown or revoked"
    if SESSION_COOKIE in cookies:
        return "the browser session has ended; sign in again"
    return "an API key is required: send `Authorization: Bearer <key>`"
