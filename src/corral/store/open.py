"""Opens the database of a store address and migrates it."""

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
        # Imported here, so that frontends on SQLite spend neither memory nor start-up time on it.
        from corral.store.engine.postgres import PostgresDatabase

        database = await PostgresDatabase.connect(url, redact_url(url), connections=connections, clock=clock, ids=ids)
    if not migrate:
        return database
    try:
        await database.migrate(prune_intents)
    except BaseException:  # the caller gets nothing to close
        await database.close()
        raise
    return database
