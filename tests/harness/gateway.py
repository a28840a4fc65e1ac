"""A gateway on a real socket, and replicas that are real servers with scripts."""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from starlette.responses import PlainTextResponse

from corral.core.replicas.attached import AttachedServer, ServerTrust, UpstreamProtocol, parse_server_url
from corral.core.replicas.public_routes import PublicRoute
from corral.core.replicas.routing import ModelRoute, ReplicaId, RoutePolicy, RouteReplica, RouteSnapshot
from corral.frontend.gateway.drivers import Driver
from corral.frontend.gateway.gateway import Gateway
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.keys import ClientKey
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import LoadFailed, Loads
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.frontend.gateway.upstream.upstream import HOLD_BACK_S, HttpUpstream
from corral.frontend.gateway.version_counter import VersionCounter
from corral.system import SystemClock
from corral.system.http_limits import HttpLimits
from corral.system.http_server import serve_http
from corral.system.listen import bind_socket
from corral.telemetry.metrics import MetricRegistry, render

KEY = "corral-test-key"
OTHER_KEY = "corral-other-key"
LIMITED_KEY = "corral-limited-key"


@dataclass
class Seen:
    """A request as a replica received it."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"

    def json(self) -> Any:
        return json.loads(self.body)


class ClientGone(Exception):
    """The gateway closed the connection."""


class Answering:
    """What a replica script can do with one request."""

    def __init__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen = seen
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def json(self, body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(content)}\r\n\r\n"
        await self.send(head.encode() + content)

    async def start_stream(self, kind: str = "text/event-stream") -> None:
        await self.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, data: Any) -> None:
        await self.chunk(b"data: " + (data.encode() if isinstance(data, str) else json.dumps(data).encode()) + b"\n\n")

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    def die(self) -> None:
        self.writer.transport.abort()

    async def wait_for_hangup(self) -> None:
        await self.reader.read()


Script = Callable[[Answering], Awaitable[None]]


def completion(who: str) -> dict[str, Any]:
    return {
        "id": "c", "object": "chat.completion", "model": "m", "who": who,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip


class Replica:
    """Answers with its own name unless a test gives it a script. It rejects clients without its token."""

    def __init__(self, name: str, *, token: str | None = None) -> None:
        self.name = name
        self.token = token or f"token-of-{name}"
        self.seen: list[Seen] = []
        self.open = 0
        self.connections = 0
        self.script: Script = self._answer
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        """As a killed process: nobody listens, and every connection is reset."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            self._server = None

    async def _answer(self, answering: Answering) -> None:
        await answering.json(completion(self.name))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = head[0].split(" ")
        seen = Seen(path, headers, body, method)
        answering = Answering(seen, reader, writer)
        if headers.get("authorization") != f"Bearer {self.token}" and headers.get("x-api-key") != self.token:
            await answering.json({"error": "wrong token"}, status=401)
            return True
        self.seen.append(seen)
        self.open += 1
        try:
            await self.script(answering)
        finally:
            self.open -= 1
        return not writer.is_closing()

    def route(
        self,
        *,
        capacity: int | None = None,
        generation: int = 1,
        protocol: str = "openai",
        endpoints: frozenset[str] = frozenset(),
        continuation: str = "",
        digest: str = "",
    ) -> RouteReplica:
        return RouteReplica(
            id=ReplicaId(f"replica-{self.name}"), node_id=f"id-of-{self.name}", node_name=f"node-{self.name}", slot=0,
            address=f"127.0.0.1:{self.port}", protocol=protocol, token=self.token, generation=generation,
            capacity=capacity, revision="r1", backend_digest=digest, endpoints=endpoints,
            continuation=continuation,
        )  # fmt: skip

    def attached_route(
        self,
        *,
        path: str = "/v1",
        model: str = "",
        protocol: UpstreamProtocol = UpstreamProtocol.OPENAI,
        trust: ServerTrust | None = None,
        weight: int = 1,
        capacity: int = 32,
        endpoints: frozenset[str] = frozenset(),
        continuation: str = "",
    ) -> RouteReplica:
        """The same server as one that Corral does not start. `trust`: it has TLS."""
        scheme = "http" if trust is None else "https"
        url = parse_server_url(f"{scheme}://127.0.0.1:{self.port}{path}")
        if protocol is UpstreamProtocol.ANTHROPIC:
            endpoints = frozenset({"/v1/messages", "/v1/messages/count_tokens"})
        return replace(
            self.route(capacity=capacity, endpoints=endpoints, continuation=continuation),
            node_id=url.address,
            node_name=url.address,
            weight=weight,
            attached=AttachedServer(url=url, protocol=protocol, model=model, trust=trust or ServerTrust()),
        )


@dataclass
class Routes:
    """A route source a test can change."""

    snapshot: RouteSnapshot = field(default_factory=lambda: RouteSnapshot(version=0, routes=()))
    broken: Exception | None = None

    def put(self, *routes: ModelRoute) -> None:
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + 1, routes=routes)

    def lead(self, *public: PublicRoute) -> None:
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + 1, public=public)

    async def read_version(self) -> int:
        if self.broken:
            raise self.broken
        return self.snapshot.version

    async def read_routes(self) -> RouteSnapshot:
        return self.snapshot


class Keys:
    def __init__(self) -> None:
        self.known = {
            KEY: ClientKey("key-1", "one", admin=True),
            OTHER_KEY: ClientKey("key-2", "two"),
            LIMITED_KEY: ClientKey("key-3", "limited", frozenset({"allowed"})),
        }

    def find(self, authorization: bytes) -> ClientKey | None:
        return self.known.get(authorization.decode("latin-1").removeprefix("Bearer "))

    async def authenticate(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], method: str, address: str
    ) -> ClientKey | None:
        return None


class NoLoads:
    """Loads that always fail."""

    async def ensure(self, model: str, *, within_s: float) -> None:
        raise LoadFailed(f"no node can load {model!r}")

    def describe(self, model: str) -> str:
        return ""


class RunningGateway:
    def __init__(self, gateway: Gateway, port: int, routes: Routes, keys: Keys) -> None:
        self.gateway = gateway
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.routes = routes
        self.keys = keys

    def serve(
        self,
        model: str,
        *replicas: Replica,
        capacity: int | None = None,
        endpoints: frozenset[str] = frozenset(),
        continuation: str = "",
        **more: Any,
    ) -> None:
        """Routes one model to these replicas, in addition to the existing routes."""
        others = tuple(route for route in self.routes.snapshot.routes if route.model != model)
        routed = tuple(
            replica.route(capacity=capacity, endpoints=endpoints, continuation=continuation) for replica in replicas
        )
        self.routes.put(*others, ModelRoute(model=model, replicas=routed, **more))
        self.gateway.table.apply(self.routes.snapshot)

    def serve_routes(self, model: str, *replicas: RouteReplica, **more: Any) -> None:
        """As `serve`, with routes as they are."""
        others = tuple(route for route in self.routes.snapshot.routes if route.model != model)
        self.routes.put(*others, ModelRoute(model=model, replicas=replicas, **more))
        self.gateway.table.apply(self.routes.snapshot)

    def open_requests(self) -> int:
        """Leases that this gateway holds on replicas."""
        return sum(self.gateway.inflight.snapshot().replicas.values())

    def metrics(self) -> str:
        self.gateway.accounting.fold()
        return render(self.gateway.metrics.registry.collect())


def calling(gateway: RunningGateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=20)


@asynccontextmanager
async def running_gateway(
    *,
    limits: GatewayLimits | None = None,
    loads: Loads | None = None,
    drivers: Mapping[str, Driver] | None = None,
    http: HttpLimits | None = None,
    hold_back_s: float = HOLD_BACK_S,
    versions: VersionCounter | None = None,
    run: str = "1",
) -> AsyncIterator[RunningGateway]:
    clock = SystemClock()
    routes, keys = Routes(), Keys()
    # Seeded: a test that asks a number of times sees the same shares in each run.
    chance = random.Random(1)
    listener = bind_socket("127.0.0.1", 0, setting="")
    port = listener.getsockname()[1]
    async with HttpUpstream(hold_back_s=hold_back_s) as upstream:
        gateway = Gateway(
            keys=keys, routes=routes, upstream=upstream, inflight=InFlight("test", run=run),
            metrics=GatewayMetrics(MetricRegistry()),
            loads=loads or NoLoads(), drivers=drivers or {}, clock=clock, draw=chance.random,
            limits=limits or GatewayLimits(), versions=versions,
        )  # fmt: skip
        async with gateway:
            following = asyncio.ensure_future(gateway.table.follow())
            serving = asyncio.ensure_future(
                serve_http(PlainTextResponse("the app"), listener, raw_handler=gateway, limits=http)
            )
            try:
                yield RunningGateway(gateway, port, routes, keys)
            finally:
                gateway.end()
                for task in (following, serving):
                    task.cancel()
                await asyncio.wait({following, serving}, timeout=60)
                listener.close()  # a server that is cancelled before its first turn closes nothing


def with_policy(route: ModelRoute, policy: RoutePolicy) -> ModelRoute:
    return replace(route, policy=policy)
