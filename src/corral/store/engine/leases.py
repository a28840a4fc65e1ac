"""Leases with fences: at most one holder by the store's clock, and a former holder cannot write."""

from dataclasses import dataclass

from corral.core.errors import Fenced
from corral.store.engine.database import Database, Tx


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    holder: str
    fence: int


async def check_fence(tx: Tx, lease: Lease) -> None:
    """Call first in every transaction that requires the lease: it also locks the lease against a change of holder."""
    row = await tx.fetch_one(
        "SELECT 1 AS held FROM leases"
        " WHERE name = $1 AND holder = $2 AND fence = $3 AND expires_at > now_ms() FOR UPDATE",
        lease.name,
        lease.holder,
        lease.fence,
    )
    if row is None:
        raise Fenced(f"frontend {lease.holder} no longer holds the lease {lease.name!r}: another one has taken over")


async def check_held(tx: Tx, lease: Lease | None) -> None:
    """Check the fence if there is a lease; callers that need none pass None."""
    if lease is not None:
        await check_fence(tx, lease)


class LeaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def hold(self, name: str, holder: str, *, ttl_s: float, fresh: bool = False) -> Lease | None:
        """Acquire or renew the lease; None if another holder has it. The fence grows with every change of holder.

        `fresh`: this process has just started, so an earlier process of the same name counts as another holder."""

        async def body(tx: Tx) -> Lease | None:
            row = await tx.fetch_one(
                "INSERT INTO leases (name, holder, fence, expires_at) VALUES ($1, $2, 1, now_ms() + $3)"
                " ON CONFLICT (name) DO UPDATE SET"
                " fence = leases.fence + CASE WHEN leases.holder = excluded.holder AND $4 = 0 THEN 0 ELSE 1 END,"
                " holder = excluded.holder, expires_at = excluded.expires_at"
                " WHERE leases.holder = excluded.holder OR leases.expires_at <= now_ms()"
                " RETURNING fence",
                name,
                holder,
                int(ttl_s * 1000),
                int(fresh),
            )
            return Lease(name, holder, row["fence"]) if row else None

        return await self._database.write(body)

    async def release(self, lease: Lease) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "UPDATE leases SET expires_at = 0 WHERE name = $1 AND holder = $2 AND fence = $3",
                lease.name,
                lease.holder,
                lease.fence,
            )

        await self._database.write(body)
