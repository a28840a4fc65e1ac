"""Change counters, by which readers learn that their copy is outdated: `models` (configurations) and `routes`."""

from corral.store.engine.database import Tx

MODELS, ROUTES = "models", "routes"


async def bump_counter(tx: Tx, name: str) -> int:
    """Call it in the transaction that makes the change."""
    row = await tx.fetch_one("UPDATE change_counters SET value = value + 1 WHERE name = $1 RETURNING value", name)
    assert row is not None, f"there is no version counter {name}"
    value: int = row["value"]
    return value


async def lock_counter(tx: Tx, name: str) -> None:
    """Serialize writers of what the counter counts, until the end of the transaction."""
    await tx.fetch_one("SELECT value FROM change_counters WHERE name = $1 FOR UPDATE", name)


async def read_counter(tx: Tx, name: str) -> int:
    row = await tx.fetch_one("SELECT value FROM change_counters WHERE name = $1", name)
    assert row is not None, f"there is no version counter {name}"
    value: int = row["value"]
    return value
