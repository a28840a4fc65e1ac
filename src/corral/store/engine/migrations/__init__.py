"""Versioned changes of the schema, in order, each applied once under the migration lock.

A migration only adds: a frontend of the version before must keep working on the schema of this one while the fleet
is being updated. `{serial_key}` stands for the database's way to write a counting primary key.
"""

import re
from dataclasses import dataclass
from importlib import resources

from corral.store.engine.database import Tx

_SERIAL_KEY = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[str, ...]


def read_migrations(dialect: str) -> list[Migration]:
    found = []
    for entry in resources.files(__package__).iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            text = entry.read_text().replace("{serial_key}", _SERIAL_KEY[dialect])
            statements = tuple(part.strip() for part in text.split(";\n") if part.strip())
            found.append(Migration(int(match[1]), match[2], statements))
    return sorted(found, key=lambda migration: migration.version)


async def apply_migrations(tx: Tx, dialect: str) -> list[Migration]:
    """Bring the schema up to date; the caller holds the migration lock. Returns what was applied."""
    await tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
    )
    done = {row["version"] for row in await tx.fetch("SELECT version FROM schema_migrations")}
    applied = [migration for migration in read_migrations(dialect) if migration.version not in done]
    for migration in applied:
        for statement in migration.statements:
            await tx.execute(statement)
        await tx.execute(
            "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, now_ms())",
            migration.version,
            migration.name,
        )
    return applied
