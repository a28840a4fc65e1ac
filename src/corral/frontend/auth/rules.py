"""Who may call what. Every route is denied unless a rule opens it; the rules are data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol
from urllib.parse import urlsplit

from corral.core.errors import Forbidden, Unauthenticated
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.snapshots import Snapshot
from corral.settings.values import is_loopback_host
from corral.store.access.api_keys import ApiKey, Scope, hash_secret
from corral.system import Clock

SESSION_COOKIE = "corral_session"
CLIENT_HEADER = "x-corral-client"
NAMING = ("host", "origin")
"""Headers in which a browser tells whom it means to call, and for which page."""
REMEMBER_S = 2.0
REMEMBER_MOST = 4096
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
    Rule("/api/session", Access.PUBLIC),
    Rule("/api/node/", Access.NODE),
    Rule("/v1/", Access.USER),
)
"""The first that fits decides; what none fits is for administrators."""


def access_for(method: str, path: str) -> Access:
    for rule in RULES:
        fits = path.startswith(rule.path) if rule.path.endswith("/") else path == rule.path
        if fits and (not rule.methods or method in rule.methods):
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


class KeyStore(Protocol):
    async def find_key(self, key_hash: str) -> ApiKey | None: ...

    async def find_session(self, token_hash: str) -> ApiKey | None: ...

    async def read_ring(self) -> Mapping[str, ApiKey]:
        """Every key in force, by the hash of its secret."""
        ...

    async def read_sessions(self) -> Mapping[str, ApiKey]:
        """The keys behind every open session, by the hash of its token."""
        ...


class Authorizer:
    """Keys are looked up in the store and remembered for two seconds: a revoked one is dead everywhere by then."""

    def __init__(
        self,
        store: KeyStore,
        guesses: BruteForceGuard,
        *,
        clock: Clock,
        auth: bool,
        public: frozenset[str] = frozenset(),
        public_url: str = "",
    ) -> None:
        """`public`: further paths that anyone may read, by setting. `public_url`: what else than a loopback address
        people may call this frontend."""
        self._store = store
        self._guesses = guesses
        self._clock = clock
        self._auth = auth
        self._public = public
        self._public_host = _host_of(public_url)
        self._known: dict[str, tuple[float, ApiKey | None]] = {}
        self._forgotten = 0
        self._listeners: list[Callable[[ApiKey], None]] = []
        self._credentials = Snapshot(self._read_credentials, clock=clock, every_s=READ_ALL_EVERY_S)
        """For addresses that guess: whatever they send, the store is asked once a second."""

    async def identify(self, headers: Mapping[str, str], cookies: Mapping[str, str], address: str) -> Principal | None:
        """Raises RateLimited where too many wrong credentials came from that address."""
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
        """Who calls; raises Unauthenticated, Forbidden or RateLimited. None where the route needs no one."""
        access = access_for(method, path)
        if access <= Access.NODE or (path in self._public and method in _READ):
            return None
        self.check_page(headers)
        principal = await self.identify(headers, cookies, address)
        if principal is None:
            raise Unauthenticated(_why_unknown(headers, cookies))
        if access is Access.ADMIN and principal.scope is not Scope.ADMIN:
            raise Forbidden(f"the key {principal.name!r} has the scope {principal.scope}; this needs an admin key")
        if principal.by_cookie and method not in ("GET", "HEAD") and CLIENT_HEADER not in headers:
            raise Forbidden(f"a browser session must send the header {CLIENT_HEADER} with every change")
        return principal

    def check_page(self, headers: Mapping[str, str]) -> None:
        """Where no key is asked for, any web page could have its reader's browser call us, under whatever name leads
        here. Only this machine's own may."""
        if self._auth:
            return
        named = [f"//{headers[name]}" if name == "host" else headers[name] for name in NAMING if name in headers]
        if not all(self._is_own(_host_of(location)) for location in named):
            raise Forbidden(
                "without API keys (--no-auth) only pages and programs of this machine are served; call it by a loopback"
                " address, or tell the name it has with --public-url"
            )

    def _is_own(self, host: str) -> bool:
        return bool(host) and (is_loopback_host(host) or host == self._public_host)

    def listen(self, hear: Callable[[ApiKey], None]) -> None:
        """`hear` is called with every key that was changed or revoked through this process."""
        self._listeners.append(hear)

    def note_changed(self, key: ApiKey) -> None:
        """A change made through this process counts in it at once, also for what remembers keys elsewhere."""
        self.forget()
        for hear in self._listeners:
            hear(key)

    def forget(self) -> None:
        self._forgotten += 1
        self._known.clear()
        self._credentials.forget()

    async def _find(self, kind: str, secret_hash: str, address: str) -> ApiKey | None:
        now_s = self._clock.monotonic_s()
        used_up = self._guesses.is_used_up(address)
        known = self._known.get(secret_hash)
        if known is not None and now_s - known[0] < REMEMBER_S:
            if known[1] is None and used_up:  # otherwise the same one again, within two seconds, is no further guess
                self._guesses.note_wrong(address)
            return known[1]
        if used_up:
            found = (await self._credentials.get())[kind].get(secret_hash)
            if found is None:
                self._guesses.note_wrong(address)
            return found
        find = self._store.find_key if kind == KEY else self._store.find_session
        forgotten = self._forgotten
        found = await find(secret_hash)
        if len(self._known) >= REMEMBER_MOST:
            self._known.clear()
        if forgotten == self._forgotten:  # else it may have been read before the change
            self._known[secret_hash] = (now_s, found)
        if found is None:
            self._guesses.note_wrong(address)
        return found

    async def _read_credentials(self) -> dict[str, Mapping[str, ApiKey]]:
        return {KEY: await self._store.read_ring(), SESSION: await self._store.read_sessions()}


def _why_unknown(headers: Mapping[str, str], cookies: Mapping[str, str]) -> str:
    if headers.get("authorization"):
        return "this API key is not known here, or was revoked"
    if SESSION_COOKIE in cookies:
        return "this browser session has ended; sign in again"
    return "an API key is needed: send `Authorization: Bearer <key>`"
