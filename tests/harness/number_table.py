"""A table of numbers, for tests of the database itself."""

from corral.store.engine.database import Database, Tx


async def write_thing(database: Database, name: str, n: int) -> None:
    async def body(tx: Tx) -> None:
        await tx.execute(
            "INSERT INTO things (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = excluded.n", name, n
        )

    await database.write(body)


async def read_thing(database: Database, name: str) -> int | None:
    async def body(tx: Tx) -> int | None:
        row = await tx.fetch_one("SELECT n FROM things WHERE id = $1", name)
        return row["n"] if row else None

    return await database.read(body)


async def count_up(database: Database, name: str) -> None:
    """Read, then write what was read plus one: lost updates show as a smaller sum."""

    async def body(tx: Tx) -> None:
        row = await tx.fetch_one("SELECT n FROM things WHERE id = $1 FOR UPDATE", name)
        if row is None:
            await tx.execute("INSERT INTO things (id, n) VALUES ($1, 1)", name)
        else:
            await tx.execute("UPDATE things SET n = $2 WHERE id = $1", name, row["n"] + 1)

    await database.write(body)
