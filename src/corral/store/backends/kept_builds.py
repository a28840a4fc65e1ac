"""What references meant when they were last looked up: for loads and healing while a registry or a gallery is away."""

from collections.abc import Mapping

from corral.store.engine.database import Database, Tx


class KeptBuildStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, reference: str) -> dict[str, str]:
        """By capability."""

        async def body(tx: Tx) -> dict[str, str]:
            rows = await tx.fetch("SELECT capability, build FROM kept_builds WHERE reference = $1", reference)
            return {row["capability"]: row["build"] for row in rows}

        return await self._database.read(body)

    async def save(self, reference: str, builds: Mapping[str, str]) -> None:
        """Whatever another frontend has saved meanwhile. What is there already costs a read."""
        known = await self.read(reference)
        news = sorted(one for one in builds.items() if known.get(one[0]) != one[1])
        if not news:
            return

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "INSERT INTO kept_builds (reference, capability, build, resolved_at) VALUES ($1, $2, $3, now_ms())"
                " ON CONFLICT (reference, capability) DO UPDATE SET build = excluded.build,"
                " resolved_at = excluded.resolved_at",
                [(reference, capability, build) for capability, build in news],
            )

        await self._database.write(body)
