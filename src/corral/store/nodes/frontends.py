"""Running frontends."""

from dataclasses import dataclass

from corral.store.engine.database import Database, Tx

FRONTEND_LIVE_WITHIN_S = 20.0
"""A frontend reports every five seconds; one that has missed three reports is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendRow:
    id: str
    url: str
    version: str
    started_at: int
    age_s: float


class FrontendStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, *, id: str, url: str, version: str) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute(
                "INSERT INTO frontends (id, url, version, started_at, last_seen)"
                " VALUES ($1, $2, $3, now_ms(), now_ms()) ON CONFLICT (id) DO UPDATE SET"
                # A frontend that was killed may restart at another address, or as a newer version.
                " url = excluded.url, version = excluded.version, last_seen = now_ms()",
                id,
                url,
                version,
            )
            await tx.execute("DELETE FROM frontends WHERE last_seen < now_ms() - 86400000")

        await self._database.write(body)

    async def leave(self, id: str) -> None:
        async def body(tx: Tx) -> None:
            await tx.execute("DELETE FROM frontends WHERE id = $1", id)

        await self._database.write(body)

    async def read_live(self, *, within_s: float) -> list[FrontendRow]:
        async def body(tx: Tx) -> list[FrontendRow]:
            rows = await tx.fetch(
                "SELECT *, now_ms() AS now FROM frontends WHERE last_seen > now_ms() - $1 ORDER BY started_at, id",
                int(within_s * 1000),
            )
            return [
                FrontendRow(
                    id=row["id"],
                    url=row["url"],
                    version=row["version"],
                    started_at=row["started_at"],
                    age_s=max(0, row["now"] - row["last_seen"]) / 1000,
                )
                for row in rows
            ]

        return await self._database.read(body)
