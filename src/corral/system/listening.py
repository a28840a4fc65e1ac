"""Whether a process listens at an address."""

import asyncio
from contextlib import suppress

CONNECT_WITHIN_S = 2.0


async def refuses_connections(address: str, *, within_s: float = CONNECT_WITHIN_S) -> bool:
    """Whether the machine itself answers that nobody listens at `host:port`. Silence and every other error prove
    nothing."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return False
