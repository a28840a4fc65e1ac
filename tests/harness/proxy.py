"""A small TCP proxy that fails in the ways a network does: cut, swallow, refuse, delay."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

TURNS = 20
"""Of the loop, in which a connection that was just accepted gets its task, and an aborted one closes its socket."""


class Proxy:
    """Between a client and a server on loopback. All switches may be thrown while connections are open."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut_on: tuple[bytes, bool] | None = None
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self._requests_flow = asyncio.Event()
        self._requests_flow.set()
        self.delay_s = 0.0
        """How much later an answer arrives than it was given."""
        self.port = 0
        self.refusing = False
        self.did_cut = asyncio.Event()

    def cut_when_sent(self, marker: bytes, *, forward: bool) -> None:
        """End all connections as soon as a client sends `marker`.

        `forward`: the server gets it and answers, and the answer is what is lost; otherwise the server never sees it.
        """
        self.did_cut.clear()
        self._cut_on = (marker, forward)

    def swallow(self) -> None:
        """From now on no answer arrives, and nobody is told: a link that went silent."""
        self._answers_flow.clear()

    def swallow_requests(self) -> None:
        """From now on nothing that the client says arrives, while it still hears."""
        self._requests_flow.clear()

    def mend(self) -> None:
        self.refusing = False
        self._answers_flow.set()
        self._requests_flow.set()

    def refuse(self) -> None:
        """Nobody gets through, and who was through is cut off."""
        self.refusing = True
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = [writer]
        try:
            if not self.refusing:
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
                ends.append(there_writer)
                self._writers.update(ends)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._up(reader, there_writer, there_reader))
                    both.create_task(self._down(there_reader, writer))
        except* (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: asyncio.StreamReader
    ) -> None:
        while data := await reader.read(65536):
            await self._requests_flow.wait()
            if self._cut_on is not None and self._cut_on[0] in data:
                _, forward = self._cut_on
                self._cut_on = None
                if forward:
                    # Nothing is passed back any more; the server is done when its answer has arrived here.
                    self._answers_flow.clear()
                    writer.write(data)
                    await writer.drain()
                    await self._first_answer
                    self._answers_flow.set()
                self.did_cut.set()
                self.cut()
                raise EOFError
            writer.write(data)
            await writer.drain()
        raise EOFError

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._answers_flow.is_set():
                if not self._first_answer.done():
                    self._first_answer.set_result(None)
                await self._answers_flow.wait()
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()
        raise EOFError

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        self._first_answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            # asyncio loses a connection that it accepts in the turn in which the server closes: first, accept no more.
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            idle = 0
            while idle < TURNS:
                await asyncio.sleep(0)
                idle = 0 if self._tasks else idle + 1
                for task in set(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
            server.close()


class ProxyThread:
    """The same for tests without an event loop: `line.do(Proxy.cut)`."""

    def __init__(self, target: int | Proxy) -> None:
        """To a port, or by way of a proxy with habits of its own."""
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self.proxy = target if isinstance(target, Proxy) else Proxy(target)
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    @property
    def port(self) -> int:
        return self.proxy.port

    async def _run(self) -> None:
        async with self.proxy.running():
            self._ready.set()
            await self._over.wait()

    def do(self, *steps: Callable[[Proxy], None]) -> None:
        """In order, and done when this returns."""
        done = threading.Event()

        def act() -> None:
            for step in steps:
                step(self.proxy)
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)
        self._loop.close()
