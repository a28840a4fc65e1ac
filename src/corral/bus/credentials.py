"""Bus credentials: an operator signs the JWTs of accounts, an account those of users.

Every node gets its own user, which may use only the node's subjects and reply space.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import nkeys

from corral.bus.subjects import node_inbox, node_reply_space, sanitise_token
from corral.core.errors import InvalidSetting
from corral.core.nodes.node import NodeId

_PREFIXES = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
_SEED_STARTS = {"operator": "SO", "account": "SA", "user": "SU"}


@dataclass(frozen=True, slots=True)
class KeyPair:
    seed: str = field(repr=False)
    public: str

    def sign(self, data: bytes) -> bytes:
        signature: bytes = nkeys.from_seed(self.seed.encode()).sign(data)
        return signature


def make_key(kind: str, entropy: bytes) -> KeyPair:
    return read_key(kind, nkeys.encode_seed(entropy, _PREFIXES[kind]).decode(), setting=kind)


def read_key(kind: str, seed: str, *, setting: str) -> KeyPair:
    if not seed.startswith(_SEED_STARTS[kind]):
        raise InvalidSetting(f"{setting}: this is not the seed of a bus {kind} (those start with {_SEED_STARTS[kind]})")
    try:
        return KeyPair(seed, nkeys.from_seed(seed.encode()).public_key.decode())
    except (nkeys.NkeysError, ValueError) as error:
        raise InvalidSetting(f"{setting}: the seed is damaged ({type(error).__name__})") from None


def _encode(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _sign(
    issuer: KeyPair, *, subject: str, name: str, nats: Mapping[str, Any], now_s: int, expires_s: int | None
) -> str:
    claims: dict[str, Any] = {
        "iat": now_s,
        "iss": issuer.public,
        "sub": subject,
        "name": name,
        "nats": {**nats, "version": 2},
    }
    if expires_s is not None:
        claims["exp"] = expires_s
    digest = hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    signed = f"{_encode({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encode(claims)}"
    signature = base64.urlsafe_b64encode(issuer.sign(signed.encode())).rstrip(b"=").decode()
    return f"{signed}.{signature}"


def read_expiry_s(jwt: str) -> int | None:
    """When a user's JWT expires. The signature is not checked here; the server does that."""
    try:
        body = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return None
    expires = claims.get("exp")
    return expires if isinstance(expires, int) and expires > 0 else None


def operator_jwt(operator: KeyPair, *, system_account: str, now_s: int) -> str:
    nats = {"type": "operator", "system_account": system_account}
    return _sign(operator, subject=operator.public, name="corral", nats=nats, now_s=now_s, expires_s=None)


_UNLIMITED = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}


def account_jwt(
    operator: KeyPair, account: str, *, name: str, now_s: int, revocations: Mapping[str, int] | None = None
) -> str:
    nats: dict[str, Any] = {"type": "account", "limits": _UNLIMITED}
    if revocations:
        nats["revocations"] = dict(revocations)
    return _sign(operator, subject=account, name=name, nats=nats, now_s=now_s, expires_s=None)


@dataclass(frozen=True, slots=True)
class Permissions:
    publish: Sequence[str]
    subscribe: Sequence[str]


def node_permissions(node: NodeId) -> Permissions:
    own = f"nodes.{sanitise_token(node)}.>"
    inbox = f"{node_inbox(node)}.>"
    return Permissions(publish=(own, node_reply_space(node), inbox), subscribe=(own, inbox))


def frontend_permissions() -> Permissions:
    shared = ("nodes.>", "gallery.>", "staging.>", "state.>", "cache.>", "prefixcache.>", "corral.>", "_INBOX.>")
    return Permissions(publish=shared, subscribe=shared)


def user_jwt(
    account: KeyPair, user: str, *, name: str, permissions: Permissions | None, now_s: int, expires_s: int | None
) -> str:
    nats: dict[str, Any] = {"type": "user", "subs": -1, "data": -1, "payload": -1}
    if permissions is not None:
        nats["pub"] = {"allow": list(permissions.publish)}
        nats["sub"] = {"allow": list(permissions.subscribe)}
    return _sign(account, subject=user, name=name, nats=nats, now_s=now_s, expires_s=expires_s)
