"""API keys, sessions and registration tokens. Only hashes are stored: secrets are 256 random bits, so SHA-256 is
enough."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from corral.core.access.key_limits import NO_LIMITS, UNLIMITED, KeyLimits, LimitsInForce, limits_in_force
from corral.core.errors import Conflict, InvalidInput, NotFound
from corral.store.access.audit_events import append_event
from corral.store.engine.database import Database, Row, Tx


class Scope(StrEnum):
    ADMIN = "admin"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: str
    name: str
    scope: Scope
    hint: str
    """The first characters of the key, so that people can recognize it."""
    created_at: int
    created_by: str
    revoked_at: int | None
    models: tuple[str, ...] | None = None
    """Names of the models it may use, without aliases; None means all."""
    limits: KeyLimits = NO_LIMITS
    in_force: LimitsInForce = UNLIMITED
    """With the defaults for what the key has no limit of its own for."""
    expires_at: int | None = None


class KeepValue(StrEnum):
    KEEP = "keep"


KEEP = KeepValue.KEEP
"""In place of a new value: the present one stays."""
# All that make a key valid; each query has it, so that no frontend accepts a key longer than another.
_VALID = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now_ms())"
_DEFAULTS_ID = 1
NOTHING: Mapping[str, Any] = {}
_decode_models = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_limits = msgspec.json.Decoder(KeyLimits).decode


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _encode_limits(limits: KeyLimits) -> str:
    return msgspec.json.encode(_shown(limits)).decode()


async def _read_defaults(tx: Tx) -> KeyLimits:
    row = await tx.fetch_one("SELECT limits FROM key_defaults WHERE id = $1", _DEFAULTS_ID)
    return NO_LIMITS if row is None else _decode_limits(row["limits"])


def _api_key(row: Row, defaults: KeyLimits) -> ApiKey:
    limits = _decode_limits(row["limits"])
    return ApiKey(
        id=row["id"],
        name=row["name"],
        scope=Scope(row["scope"]),
        hint=row["hint"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        revoked_at=row["revoked_at"],
        models=None if row["models"] is None else _decode_models(row["models"]),
        limits=limits,
        in_force=limits_in_force(limits, defaults),
        expires_at=row["expires_at"],
    )


async def _lock_key(tx: Tx, id_or_name: str) -> ApiKey:
    rows = await tx.fetch(
        "SELECT * FROM api_keys WHERE (id = $1 OR name = $1) AND revoked_at IS NULL FOR UPDATE", id_or_name
    )
    if not rows:
        raise NotFound(f"there is no active key {id_or_name!r}; list the keys with `corral keys list`")
    if len(rows) > 1 and all(row["id"] != id_or_name for row in rows):
        raise NotFound(f"{len(rows)} keys are named {id_or_name!r}; use the id of the key instead")
    row = next((row for row in rows if row["id"] == id_or_name), rows[0])
    return _api_key(row, await _read_defaults(tx))


def _shown(limits: KeyLimits) -> dict[str, object]:
    """For the audit log."""
    return {name: value for name, value in msgspec.to_builtins(limits).items() if value is not None}


async def _check_expiry(tx: Tx, expires_at: int | None) -> None:
    row = await tx.fetch_one("SELECT now_ms() AS now")
    assert row is not None
    if expires_at is not None and expires_at <= row["now"]:
        raise InvalidInput("the expiry date of a key must be in the future; to end a key now, revoke it")


async def _check_not_last_admin(tx: Tx, key: ApiKey) -> None:
    """Locks all admin keys, so that two concurrent revocations cannot remove the last two. Keys that expire do not
    count: they will be gone."""
    rows = await tx.fetch(
        "SELECT id, expires_at FROM api_keys WHERE scope = $1 AND revoked_at IS NULL ORDER BY id FOR UPDATE",
        Scope.ADMIN.value,
    )
    if [row["id"] for row in rows if row["expires_at"] is None] == [key.id]:
        raise Conflict(
            f"{key.name!r} is the last admin key that does not expire; the cluster cannot be administered without one."
            " Create another one first: `corral keys create --name NAME --scope admin`"
        )


class AccessStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_key(
        self,
        *,
        id: str,
        name: str,
        scope: Scope,
        key: str,
        actor: str,
        models: Sequence[str] | None = None,
        limits: KeyLimits = NO_LIMITS,
        expires_at: int | None = None,
        other_name: bool = False,
    ) -> ApiKey:
        """Adding the same secret again changes nothing, so that a frontend can add its configured key at every start.
        `other_name`: reject the name of an active key."""
        allowed = None if models is None else tuple(dict.fromkeys(models))

        async def body(tx: Tx) -> ApiKey:
            if other_name and await tx.fetch_one(
                "SELECT id FROM api_keys WHERE name = $1 AND revoked_at IS NULL", name
            ):
                raise Conflict(f"an active key has the name {name!r}; choose another name, or revoke that key first")
            await _check_expiry(tx, expires_at)
            added = await tx.execute(
                "INSERT INTO api_keys (id, name, scope, key_hash, hint, created_at, created_by, models, limits,"
                " expires_at) VALUES ($1, $2, $3, $4, $5, now_ms(), $6, $7, $8, $9) ON CONFLICT (key_hash) DO NOTHING",
                id,
                name,
                scope.value,
                hash_secret(key),
                key[:11],
                actor,
                None if allowed is None else msgspec.json.encode(allowed).decode(),
                _encode_limits(limits),
                expires_at,
            )
            if added:
                detail: dict[str, object] = {"name": name, "scope": scope.value}
                detail |= {} if allowed is None else {"models": allowed}
                detail |= {"limits": _shown(limits)} if limits != NO_LIMITS else {}
                detail |= {} if expires_at is None else {"expires_at": expires_at}
                await append_event(tx, actor=actor, action="key.created", subject=id, detail=detail)
            row = await tx.fetch_one("SELECT * FROM api_keys WHERE key_hash = $1", hash_secret(key))
            assert row is not None
            return _api_key(row, await _read_defaults(tx))

        return await self._database.write(body)

    async def find_key(self, key_hash: str) -> ApiKey | None:
        async def body(tx: Tx) -> ApiKey | None:
            row = await tx.fetch_one(f"SELECT * FROM api_keys WHERE key_hash = $1 AND {_VALID}", key_hash)  # noqa: S608
            return _api_key(row, await _read_defaults(tx)) if row else None

        return await self._database.read(body)

    async def read_keys(self) -> list[ApiKey]:
        async def body(tx: Tx) -> list[ApiKey]:
            defaults = await _read_defaults(tx)
            return [_api_key(row, defaults) for row in await tx.fetch("SELECT * FROM api_keys ORDER BY created_at, id")]

        return await self._database.read(body)

    async def read_active_keys(self) -> dict[str, ApiKey]:
        """Active keys, by the hash of their secret."""

        async def body(tx: Tx) -> dict[str, ApiKey]:
            defaults = await _read_defaults(tx)
            rows = await tx.fetch(f"SELECT * FROM api_keys WHERE {_VALID}")  # noqa: S608  a constant
            return {row["key_hash"]: _api_key(row, defaults) for row in rows}

        return await self._database.read(body)

    async def set_key_models(self, id_or_name: str, models: Sequence[str] | None, *, actor: str) -> ApiKey:
        allowed = None if models is None else tuple(dict.fromkeys(models))

        async def body(tx: Tx) -> ApiKey:
            key = await _lock_key(tx, id_or_name)
            text = None if allowed is None else msgspec.json.encode(allowed).decode()
            await tx.execute("UPDATE api_keys SET models = $2 WHERE id = $1", key.id, text)
            detail = {"name": key.name, "models": allowed}
            await append_event(tx, actor=actor, action="key.models", subject=key.id, detail=detail)
            return replace(key, models=allowed)

        return await self._database.write(body)

    async def edit_key(
        self,
        id_or_name: str,
        *,
        limits: Mapping[str, Any] = NOTHING,
        expires_at: int | KeepValue | None = KEEP,
        models: Sequence[str] | KeepValue | None = KEEP,
        actor: str,
    ) -> ApiKey:
        """Changes what is given, in one step. `limits`: those to change, by name."""

        async def body(tx: Tx) -> ApiKey:
            key = await _lock_key(tx, id_or_name)
            changed: dict[str, object] = {}
            if limits:
                own = replace(key.limits, **limits)
                changed["limits"] = dict(limits)
                key = replace(key, limits=own, in_force=limits_in_force(own, await _read_defaults(tx)))
            if not isinstance(expires_at, KeepValue):
                await _check_expiry(tx, expires_at)
                if expires_at is not None and key.scope is Scope.ADMIN:
                    await _check_not_last_admin(tx, key)
                changed["expires_at"] = expires_at
                key = replace(key, expires_at=expires_at)
            if not isinstance(models, KeepValue):
                allowed = None if models is None else tuple(dict.fromkeys(models))
                changed["models"] = allowed
                key = replace(key, models=allowed)
            await tx.execute(
                "UPDATE api_keys SET models = $2, limits = $3, expires_at = $4 WHERE id = $1",
                key.id,
                None if key.models is None else msgspec.json.encode(key.models).decode(),
                _encode_limits(key.limits),
                key.expires_at,
            )
            detail = {"name": key.name, **changed}
            await append_event(tx, actor=actor, action="key.edited", subject=key.id, detail=detail)
            return key

        return await self._database.write(body)

    async def read_default_limits(self) -> KeyLimits:
        return await self._database.read(_read_defaults)

    async def edit_default_limits(self, limits: Mapping[str, Any], *, actor: str) -> KeyLimits:
        """For all keys, as far as they have no limits of their own. `limits`: those to change, by name."""

        async def body(tx: Tx) -> KeyLimits:
            changed = replace(await _read_defaults(tx), **limits)
            await tx.execute(
                "INSERT INTO key_defaults (id, limits) VALUES ($1, $2)"
                " ON CONFLICT (id) DO UPDATE SET limits = excluded.limits",
                _DEFAULTS_ID,
                _encode_limits(changed),
            )
            await append_event(tx, actor=actor, action="key.defaults", subject="keys", detail=dict(limits))
            return changed

        return await self._database.write(body)

    async def revoke_key(self, id_or_name: str, *, actor: str) -> ApiKey:
        async def body(tx: Tx) -> ApiKey:
            key = await _lock_key(tx, id_or_name)
            await _check_not_last_admin(tx, key)
            await tx.execute("UPDATE api_keys SET revoked_at = now_ms() WHERE id = $1", key.id)
            await append_event(tx, actor=actor, action="key.revoked", subject=key.id, detail={"name": key.name})
            row = await tx.fetch_one("SELECT * FROM api_keys WHERE id = $1", key.id)
            assert row is not None
            return _api_key(row, await _read_defaults(tx))

        return await self._database.write(body)

    async def open_session(self, key_id: str, token: str, *, ttl_s: float) -> None:
        """Open a browser session for the key; it ends when the key is revoked."""

        async def body(tx: Tx) -> None:
            await tx.execute("DELETE FROM sessions WHERE expires_at < now_ms()")
            await tx.execute(
                "INSERT INTO sessions (token_hash, key_id, created_at, expires_at)"
                " VALUES ($1, $2, now_ms(), now_ms() + $3)",
                hash_secret(token),
                key_id,
                int(ttl_s * 1000),
            )

        await self._database.write(body)

    async def find_session(self, token_hash: str) -> ApiKey | None:
        async def body(tx: Tx) -> ApiKey | None:
            row = await tx.fetch_one(
                "SELECT api_keys.* FROM sessions JOIN api_keys ON api_keys.id = sessions.key_id"
                " WHERE sessions.token_hash = $1 AND sessions.expires_at > now_ms() AND api_keys.revoked_at IS NULL"
                " AND (api_keys.expires_at IS NULL OR api_keys.expires_at > now_ms())",
                token_hash,
            )
            return _api_key(row, await _read_defaults(tx)) if row else None

        return await self._database.read(body)

    async def read_sessions(self) -> dict[str, ApiKey]:
        """The API keys of open sessions, by the hash of the session's token."""

        async def body(tx: Tx) -> dict[str, ApiKey]:
            rows = await tx.fetch(
                "SELECT sessions.token_hash, api_keys.* FROM sessions JOIN api_keys ON api_keys.id = sessions.key_id"
                " WHERE sessions.expires_at > now_ms() AND api_keys.revoked_at IS NULL"
                " AND (api_keys.expires_at IS NULL OR api_keys.expires_at > now_ms())"
            )
            defaults = await _read_defaults(tx)
            return {row["token_hash"]: _api_key(row, defaults) for row in rows}

        return await self._database.read(body)

    async def close_session(self, token_hash: str) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute("DELETE FROM sessions WHERE token_hash = $1", token_hash)

        await self._database.write(body)

    async def add_join_token(self, token: str, *, approves: bool = False) -> None:
        """`approves`: nodes that register with it are approved; for the worker that `corral up` starts itself."""

        async def body(tx: Tx) -> None:
            await tx.execute(
                "INSERT INTO join_tokens (token_hash, approves, created_at) VALUES ($1, $2, now_ms())"
                " ON CONFLICT (token_hash) DO NOTHING",
                hash_secret(token),
                approves,
            )

        await self._database.write(body)

    async def read_join_tokens(self) -> dict[str, bool]:
        """By hash of each active token: whether it approves nodes."""

        async def body(tx: Tx) -> dict[str, bool]:
            rows = await tx.fetch("SELECT token_hash, approves FROM join_tokens WHERE revoked_at IS NULL")
            return {row["token_hash"]: bool(row["approves"]) for row in rows}

        return await self._database.read(body)
