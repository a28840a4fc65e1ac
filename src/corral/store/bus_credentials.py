"""Which bus credentials were handed to which node, and which of them were taken back."""

from corral.core.nodes import NodeId
from corral.store.database import Database, Tx


async def record_bus_credential(tx: Tx, node_id: NodeId, public_key: str, *, ttl_s: float) -> None:
    """Renewing a credential for the same key moves its end."""
    await tx.execute(
        "INSERT INTO bus_credentials (public_key, node_id, issued_at, expires_at)"
        " VALUES ($1, $2, now_ms(), now_ms() + $3)"
        " ON CONFLICT (public_key) DO UPDATE SET expires_at = excluded.expires_at",
        public_key,
        node_id,
        int(ttl_s * 1000),
    )
    await tx.execute("DELETE FROM bus_credentials WHERE expires_at < now_ms()")


async def revoke_bus_credentials(tx: Tx, node_id: NodeId, *, but: str | None = None) -> None:
    """Everything the node was handed, except the key of the process that speaks for it now."""
    await tx.execute(
        "UPDATE bus_credentials SET revoked_at = now_ms()"
        " WHERE node_id = $1 AND revoked_at IS NULL AND public_key <> $2",
        node_id,
        but or "",
    )


class BusCredentialStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_revoked(self) -> dict[str, int]:
        """Public key to the second up to which its credentials are void. Expired ones need no revocation."""

        async def body(tx: Tx) -> dict[str, int]:
            rows = await tx.fetch(
                "SELECT public_key, revoked_at FROM bus_credentials"
                " WHERE revoked_at IS NOT NULL AND expires_at >= now_ms() ORDER BY public_key"
            )
            return {row["public_key"]: row["revoked_at"] // 1000 for row in rows}

        return await self._database.read(body)
