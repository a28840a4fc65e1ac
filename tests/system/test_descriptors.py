"""A server with few descriptors, and far more silent connections than that."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.ports import free_port
from harness.streams import connect
from harness.waiting import is_listening, until

DESCRIPTORS = 300
SERVER = f"""
import asyncio, resource, socket, sys, uvloop
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from starlette.responses import PlainTextResponse
from corral.system.http_server import serve_http

async def use_files():
    while True:
        open("/dev/null").close()
        await asyncio.sleep(0.001)

async def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=2048)
    serving = asyncio.ensure_future(serve_http(PlainTextResponse("here"), listener))
    await asyncio.wait({{serving, asyncio.ensure_future(use_files())}}, return_when=asyncio.FIRST_COMPLETED)
    sys.exit("it ended by itself")

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


async def ask(port: int) -> bytes:
    async with asyncio.timeout(30):
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that must be there to the end."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stdin=subprocess.DEVNULL)
    yield port
    ended = server.poll()
    server.kill()
    server.wait(30)
    assert ended is None


async def test_silent_connections_leave_descriptors_for_requests_and_for_files(port: int) -> None:
    with ExitStack() as held:
        await until(lambda: is_listening(port), "it listens")
        for number in range(1000):
            _, writer = await connect(port, local_addr=(f"127.0.4.{number % 20}", 0))
            held.callback(writer.close)
            if number % 50 == 0:
                assert (await ask(port)).endswith(b"here")
        assert (await ask(port)).endswith(b"here")
