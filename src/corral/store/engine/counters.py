"""Counters that tell a reader's copy from the truth: `models` (configurations) and `routes` (where requests may go)."""

from corral.store.engine.database import Tx

MODELS, ROUTES = "models", "routes"


async def bump_version(tx: Tx, name: str) -> int:
    """In the transaction of the change."""
    row = await tx.fetch_one("UPDATE versions SET value = value + 1 WHERE name = $1 RETURNING value", name)
    assert row is not None, f"there is no version counter {name}"
    value: int = row["value"]
    return value


async def lock_version(tx: Tx, name: str) -> None:
    """Writers of what the counter counts take turns from here on."""
    await tx.fetch_one("SELECT value FROM versions WHERE name = $1 FOR UPDATE", name)


async def read_version(tx: Tx, name: str) -> int:
    row = await tx.fetch_one("SELECT value FROM versions WHERE name = $1", name)
    assert row is not None, f"there is no version counter {name}"
    value: int = row["value"]
    return value
