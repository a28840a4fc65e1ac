"""Schema migrations: numbered SQL files, each applied once, in order, under the migration lock.

After the first release, a migration only adds, and an applied one never changes: while the fleet is being updated, a
frontend of the previous version works on the new schema. `{serial_key}` stands for an auto-incrementing primary key.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from corral.core.errors import InvalidSetting
from corral.store.engine.database import AfterMigration, Database, Tx

_SERIAL_KEY = {
    "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}
_REMOVE = {
    "sqlite": "Remove the file, together with the files of the same name that end in -wal and -shm",
    "postgresql": "Drop the database and create an empty one",
}


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: tuple[str, ...]

    @property
    def checksum(self) -> str:
        """Of the statements; comments and layout do not count."""
        return hashlib.sha256("\n".join(" ".join(one.split()) for one in self.statements).encode()).hexdigest()


class OutdatedSchema(InvalidSetting):
    """The database was created by a version whose schema this version does not know."""

    code = "outdated_schema"

    def __init__(self, database: Database) -> None:
        super().__init__(
            f"the database {database.location} was created by an unreleased development version of Corral, and its"
            f" tables differ from those of this version. It cannot be converted. {_REMOVE[database.dialect]}, then"
            " start Corral again; or point the setting `store` at another database."
        )


def read_migrations(dialect: str) -> list[Migration]:
    found = []
    for entry in resources.files(__package__).iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            text = re.sub(r"--[^\n]*", "", entry.read_text()).replace("{serial_key}", _SERIAL_KEY[dialect])
            statements = tuple(part.strip() for part in text.split(";\n") if part.strip())
            found.append(Migration(int(match[1]), match[2], statements))
    return sorted(found, key=lambda migration: migration.version)


async def migrate_schema(tx: Tx, database: Database, then: AfterMigration | None) -> list[str]:
    """Apply the missing migrations and then `then`, in one transaction. Return the names of those applied."""
    applied = await apply_migrations(tx, database, read_migrations(database.dialect))
    if then is not None:
        await then(tx)
    return [migration.name for migration in applied]


async def apply_migrations(tx: Tx, database: Database, migrations: Iterable[Migration]) -> list[Migration]:
    """Apply the missing ones and return them; the caller holds the migration lock.

    Raises OutdatedSchema if an applied migration is another one than ours. Ones that we do not know are newer, and
    only add."""
    await tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)"
    )
    # Not by column: the table of the first development versions had no checksums.
    done = {row["version"]: row for row in await tx.fetch("SELECT * FROM schema_migrations")}
    applied = []
    for migration in migrations:
        before = done.get(migration.version)
        if before is None:
            await _apply(tx, migration)
            applied.append(migration)
        elif before["name"] != migration.name or before["checksum"] != migration.checksum:
            raise OutdatedSchema(database)
    return applied


async def _apply(tx: Tx, migration: Migration) -> None:
    for statement in migration.statements:
        await tx.execute(statement)
    await tx.execute(
        "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, now_ms())",
        migration.version,
        migration.name,
        migration.checksum,
    )
