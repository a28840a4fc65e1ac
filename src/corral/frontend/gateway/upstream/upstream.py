"""HTTP to replicas: connections are kept open and reused, and every request gets an answer or a failure."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from corral.core.replicas.attached import ServerTrust
from corral.formats.http_heads import RepeatedHead
from corral.frontend.gateway.upstream.calls import FailureKind, Headers, ResponseSink
from corral.frontend.gateway.upstream.connection import ReplicaConnection, UpstreamHttpCall, describe_os_error
from corral.frontend.gateway.upstream.outbox import Outbox
from corral.system.server_trust import UntrustedServer, check_peer, tls_context

CONNECT_WITHIN_S = 2.0
# Servers with TLS are often far away, and need several round trips.
TLS_CONNECT_WITHIN_S = 5.0
# Servers commonly close idle connections after 5 s. Closing earlier avoids writing to one that is being closed.
IDLE_MAX_S = 4.0
SWEEP_EVERY_S = 1.0
# Some replicas announce that they keep a connection after a stream, and close it all the same. Until it is known what a
# replica does, its connection is not used again for this long.
HOLD_BACK_S = 0.25
# A killed process may accept connections until the kernel has closed its sockets.
KEPT_S = 0.5


class HttpUpstream:
    """Owns its connections and the tasks that open them. Leaving the block ends all of them."""

    def __init__(self, *, hold_back_s: float = HOLD_BACK_S) -> None:
        self._hold_back_s = hold_back_s
        self._links: set[HttpLink] = set()
        self._outbox = Outbox()
        self._tasks = asyncio.TaskGroup()
        self._sweeping: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sweeping = self._tasks.create_task(self._sweep(), name="upstream.sweep")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sweeping is not None
        self._sweeping.cancel()
        for task in self._opening:
            task.cancel()
        for link in list(self._links):
            link.end()
        await self._tasks.__aexit__(kind, error, trace)

    def open(self, address: str, *, trust: ServerTrust | None = None) -> "HttpLink":
        host, _, port = address.rpartition(":")
        link = HttpLink(
            host.strip("[]"), int(port), self._outbox, self._connect, self._links.discard, self._hold_back_s, trust
        )
        self._links.add(link)
        return link

    def _connect(self, link: "HttpLink", call: "UpstreamHttpCall") -> None:
        task = self._tasks.create_task(link.connect(call), name="upstream.connect")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            for link in list(self._links):
                link.close_idle(before_s=loop.time() - IDLE_MAX_S)


class HttpLink:
    def __init__(
        self,
        host: str,
        port: int,
        outbox: Outbox,
        connect: "Callable[[HttpLink, UpstreamHttpCall], None]",
        on_done: "Callable[[HttpLink], None]",
        hold_back_s: float,
        trust: ServerTrust | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self.outbox = outbox
        self._connect = connect
        self._on_done = on_done
        self._hold_back_s = hold_back_s
        self._trust = trust
        self._connect_within_s = CONNECT_WITHIN_S if trust is None else TLS_CONNECT_WITHIN_S
        self._idle: list[ReplicaConnection] = []
        self._held_back: list[ReplicaConnection] = []
        """Connections whose stream has ended, while it is unknown whether the replica keeps them."""
        self.keeps_after_streams: bool | None = None
        self._open: set[ReplicaConnection] = set()
        self._closed = False
        self.repeated: RepeatedHead[Headers] = RepeatedHead()
        """The head of this replica's latest complete answer with status 200 on a connection that is kept."""
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time

    def send(self, request: bytes, sink: ResponseSink) -> "UpstreamHttpCall":
        call = UpstreamHttpCall(request, sink)
        idle = self._idle
        while idle:
            if idle.pop().begin_again(call, self._now_s()):
                return call
        self._connect(self, call)
        return call

    async def connect(self, call: "UpstreamHttpCall") -> None:
        try:
            async with asyncio.timeout(self._connect_within_s):
                tls = tls_context(self._trust) if self._trust is not None else None
                transport, connection = await self._loop.create_connection(
                    lambda: ReplicaConnection(self), self._host, self._port, ssl=tls
                )
            self._check(transport)
        except TimeoutError:
            call.fail(FailureKind.UNREACHABLE, f"no connection within {self._connect_within_s:g} s")
        except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
            call.fail(FailureKind.UNREACHABLE, describe_os_error(error))
        except Exception as error:  # noqa: BLE001  the sink logs it; all other connections continue
            call.crash(error)
        else:
            self._open.add(connection)
            if call.cancelled:
                self.give_back(connection)
            else:
                connection.begin(call)

    def _check(self, transport: asyncio.BaseTransport) -> None:
        """Before anything is sent: a server with another certificate than the pinned one gets no key."""
        if self._trust is None:
            return
        try:
            check_peer(transport, self._trust)
        except UntrustedServer:
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
            raise

    async def probe(self, request: bytes, *, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                tls = tls_context(self._trust) if self._trust is not None else None
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=tls)
                self._check(writer.transport)
                try:
                    if not request:
                        return await _is_kept(reader)
                    writer.write(request)
                    return (await reader.read(16)).startswith(b"HTTP/")
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, UnicodeError):
            return False

    def again(self, call: "UpstreamHttpCall") -> None:
        if self._closed:
            call.fail(FailureKind.BROKEN, "the connection was closed")
        else:
            self._connect(self, call)

    def give_back(self, connection: "ReplicaConnection", *, after_stream: bool = False) -> None:
        if self._closed or (after_stream and self.keeps_after_streams is False):
            connection.close()
            return
        connection.idle_since_s = self._now_s()
        if after_stream and self.keeps_after_streams is None:
            self._held_back.append(connection)
            self._loop.call_later(self._hold_back_s, self._make_idle, connection)
        else:
            self._idle.append(connection)

    def _make_idle(self, connection: "ReplicaConnection") -> None:
        if connection in self._held_back and not self._closed:
            self._held_back.remove(connection)
            self._idle.append(connection)
            if self.keeps_after_streams is None:
                self.keeps_after_streams = True

    def closes_after_streams(self) -> None:
        self.keeps_after_streams = False

    def lost(self, connection: "ReplicaConnection") -> None:
        self._open.discard(connection)
        if connection in self._held_back:
            self._held_back.remove(connection)
            if not self._closed:
                self.closes_after_streams()
        if connection in self._idle:
            self._idle.remove(connection)
        self._maybe_done()

    def close_idle(self, *, before_s: float) -> None:
        while self._idle and self._idle[0].idle_since_s < before_s:
            self._idle.pop(0).close()

    def close(self) -> None:
        self._closed = True
        self.close_idle(before_s=float("inf"))
        for connection in self._held_back:
            connection.close()
        self._maybe_done()

    def end(self) -> None:
        self.close()
        for connection in list(self._open):
            connection.abort()

    def _maybe_done(self) -> None:
        if self._closed and not self._open:
            self._on_done(self)


async def _is_kept(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(KEPT_S):
            return bool(await reader.read(1))
    except TimeoutError:
        return True
