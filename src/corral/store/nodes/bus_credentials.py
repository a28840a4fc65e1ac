"""Bus credentials issued to nodes, and their revocations."""

from corral.core.errors import Conflict
from corral.core.nodes.node import NodeId
from corral.store.engine.database import Database, Tx

# A frontend's clock sets the expiry of a credential, and the bus server's clock decides on it. A revocation is kept
# until the credential has expired by every clock.
CLOCK_SKEW_MS = 600_000


async def record_bus_credential(tx: Tx, node_id: NodeId, public_key: str, *, ttl_s: float) -> None:
    """Renewing a credential for the same key extends it.

    A removed worker that joins again may bring its key. A key of another node is rejected: the owner's credential would
    otherwise be revoked with the wrong node."""
    owner = await tx.fetch_one(
        "SELECT bus_credentials.node_id AS id FROM bus_credentials JOIN nodes ON nodes.id = bus_credentials.node_id"
        " WHERE public_key = $1 AND nodes.removed_at IS NULL",
        public_key,
    )
    if owner is not None and owner["id"] != node_id:
        raise Conflict("this bus key belongs to another node; restart the worker, which then creates a new key")
    await tx.execute(
        "INSERT INTO bus_credentials (public_key, node_id, issued_at, expires_at)"
        " VALUES ($1, $2, now_ms(), now_ms() + $3)"
        " ON CONFLICT (public_key) DO UPDATE SET"
        " node_id = excluded.node_id, issued_at = excluded.issued_at, expires_at = excluded.expires_at",
        public_key,
        node_id,
        int(ttl_s * 1000),
    )
    await tx.execute("DELETE FROM bus_credentials WHERE expires_at < now_ms() - $1", CLOCK_SKEW_MS)


async def revoke_bus_credentials(tx: Tx, node_id: NodeId) -> None:
    """Revoke all credentials issued to the node so far. Those issued from the next second on are valid."""
    await tx.execute(
        "UPDATE bus_credentials SET revoked_at = now_ms()"
        " WHERE node_id = $1 AND (revoked_at IS NULL OR revoked_at <= issued_at)",
        node_id,
    )


class BusCredentialStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_revoked(self) -> dict[str, int]:
        """By public key: the second up to which its credentials are void. Expired credentials are left out."""

        async def body(tx: Tx) -> dict[str, int]:
            rows = await tx.fetch(
                "SELECT public_key, revoked_at FROM bus_credentials"
                " WHERE revoked_at IS NOT NULL AND expires_at >= now_ms() - $1 ORDER BY public_key",
                CLOCK_SKEW_MS,
            )
            return {row["public_key"]: row["revoked_at"] // 1000 for row in rows}

        return await self._database.read(body)
