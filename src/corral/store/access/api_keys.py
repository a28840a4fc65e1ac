"""API keys, sessions and registration tokens. Only hashes are stored: secrets are 256 random bits, so SHA-256 is
enough."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from corral.core.errors import Conflict, NotFound
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


_decode_models = msgspec.json.Decoder(tuple[str, ...]).decode


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _api_key(row: Row) -> ApiKey:
    return ApiKey(
        id=row["id"],
        name=row["name"],
        scope=Scope(row["scope"]),
        hint=row["hint"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        revoked_at=row["revoked_at"],
        models=None if row["models"] is None else _decode_models(row["models"]),
    )


async def _lock_key(tx: Tx, id_or_name: str) -> ApiKey:
    rows = await tx.fetch(
        "SELECT * FROM api_keys WHERE (id = $1 OR name = $1) AND revoked_at IS NULL FOR UPDATE", id_or_name
    )
    if not rows:
        raise NotFound(f"there is no active key {id_or_name!r}; list the keys with `corral keys list`")
    if len(rows) > 1 and all(row["id"] != id_or_name for row in rows):
        raise NotFound(f"{len(rows)} keys are named {id_or_name!r}; use the id of the key instead")
    return _api_key(next((row for row in rows if row["id"] == id_or_name), rows[0]))


async def _check_not_last_admin(tx: Tx, key: ApiKey) -> None:
    """Locks all admin keys, so that two concurrent revocations cannot remove the last two."""
    rows = await tx.fetch(
        "SELECT id FROM api_keys WHERE scope = $1 AND revoked_at IS NULL ORDER BY id FOR UPDATE", Scope.ADMIN.value
    )
    if [row["id"] for row in rows] == [key.id]:
        raise Conflict(
            f"{key.name!r} is the last admin key; the cluster cannot be administered without one."
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
            added = await tx.execute(
                "INSERT INTO api_keys (id, name, scope, key_hash, hint, created_at, created_by, models)"
                " VALUES ($1, $2, $3, $4, $5, now_ms(), $6, $7) ON CONFLICT (key_hash) DO NOTHING",
                id,
                name,
                scope.value,
                hash_secret(key),
                key[:11],
                actor,
                None if allowed is None else msgspec.json.encode(allowed).decode(),
            )
            if added:
                detail = {"name": name, "scope": scope.value, **({} if allowed is None else {"models": allowed})}
                await append_event(tx, actor=actor, action="key.created", subject=id, detail=detail)
            row = await tx.fetch_one("SELECT * FROM api_keys WHERE key_hash = $1", hash_secret(key))
            assert row is not None
            return _api_key(row)

        return await self._database.write(body)

    async def find_key(self, key_hash: str) -> ApiKey | None:
        async def body(tx: Tx) -> ApiKey | None:
            row = await tx.fetch_one("SELECT * FROM api_keys WHERE key_hash = $1 AND revoked_at IS NULL", key_hash)
            return _api_key(row) if row else None

        return await self._database.read(body)

    async def read_keys(self) -> list[ApiKey]:
        async def body(tx: Tx) -> list[ApiKey]:
            return [_api_key(row) for row in await tx.fetch("SELECT * FROM api_keys ORDER BY created_at, id")]

        return await self._database.read(body)

    async def read_active_keys(self) -> dict[str, ApiKey]:
        """Active keys, by the hash of their secret."""

        async def body(tx: Tx) -> dict[str, ApiKey]:
            rows = await tx.fetch("SELECT * FROM api_keys WHERE revoked_at IS NULL")
            return {row["key_hash"]: _api_key(row) for row in rows}

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

    async def revoke_key(self, id_or_name: str, *, actor: str) -> ApiKey:
        async def body(tx: Tx) -> ApiKey:
            key = await _lock_key(tx, id_or_name)
            await _check_not_last_admin(tx, key)
            await tx.execute("UPDATE api_keys SET revoked_at = now_ms() WHERE id = $1", key.id)
            await append_event(tx, actor=actor, action="key.revoked", subject=key.id, detail={"name": key.name})
            row = await tx.fetch_one("SELECT * FROM api_keys WHERE id = $1", key.id)
            assert row is not None
            return _api_key(row)

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
                " WHERE sessions.token_hash = $1 AND sessions.expires_at > now_ms() AND api_keys.revoked_at IS NULL",
                token_hash,
            )
            return _api_key(row) if row else None

        return await self._database.read(body)

    async def read_sessions(self) -> dict[str, ApiKey]:
        """The API keys of open sessions, by the hash of the session's token."""

        async def body(tx: Tx) -> dict[str, ApiKey]:
            rows = await tx.fetch(
                "SELECT sessions.token_hash, api_keys.* FROM sessions JOIN api_keys ON api_keys.id = sessions.key_id"
                " WHERE sessions.expires_at > now_ms() AND api_keys.revoked_at IS NULL"
            )
            return {row["token_hash"]: _api_key(row) for row in rows}

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
