"""The builds that references last resolved to, for loads and corrections while a registry or gallery is unavailable."""

from collections.abc import Mapping

from corral.store.engine.database import Database, Tx


class ResolvedBuildStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, reference: str) -> dict[str, str]:
        """By capability."""

        async def body(tx: Tx) -> dict[str, str]:
            rows = await tx.fetch("SELECT capability, build FROM resolved_builds WHERE reference = $1", reference)
            return {row["capability"]: row["build"] for row in rows}

        return await self._database.read(body)

    async def save(self, reference: str, builds: Mapping[str, str]) -> None:
        """Write the builds that differ; if none does, this only reads. The last frontend to save wins."""
        known = await self.read(reference)
        changed = sorted(one for one in builds.items() if known.get(one[0]) != one[1])
        if not changed:
            return

        async def body(tx: Tx) -> None:
            await tx.execute_many(
                "INSERT INTO resolved_builds (reference, capability, build, resolved_at) VALUES ($1, $2, $3, now_ms())"
                " ON CONFLICT (reference, capability) DO UPDATE SET build = excluded.build,"
                " resolved_at = excluded.resolved_at",
                [(reference, capability, build) for capability, build in changed],
            )

        await self._database.write(body)
