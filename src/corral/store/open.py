"""From a store address to an open, migrated database."""

from pathlib import Path

from corral.core.errors import InvalidSetting
from corral.settings.values import redact_url
from corral.store.backends.prune import prune_intents
from corral.store.engine.database import Database
from corral.system import Clock, Ids


async def open_database(url: str, *, connections: int, clock: Clock, ids: Ids, migrate: bool = True) -> Database:
    database: Database
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from corral.store.engine.sqlite import SqliteDatabase

        if not rest.startswith("/"):
            raise InvalidSetting(f"store: {url!r} needs an absolute path: sqlite:///path/to/corral.db")
        database = SqliteDatabase(Path(rest), clock=clock, ids=ids)
    else:
        # Imported late: who runs on SQLite pays neither its memory nor its start-up time.
        from corral.store.engine.postgres import PostgresDatabase

        database = await PostgresDatabase.connect(url, redact_url(url), connections=connections, clock=clock, ids=ids)
    if not migrate:
        return database
    try:
        await database.migrate(prune_intents)
    except BaseException:
        await database.close()
        raise
    return database
