"""Connections to servers on loopback that end with their test."""

import asyncio
from typing import Any

_open: list[asyncio.StreamWriter] = []


async def connect(port: int, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A test need not close it: tests/conftest.py does when the test has ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    _open.append(writer)
    return reader, writer


async def close_all() -> None:
    for writer in _open:
        writer.transport.abort()
    _open.clear()
    await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop
