"""Corral's gateway on a port, as a frontend runs it, with a fixed route table in place of the store's replicas.

    corral_gateway.py PORT ADDRESS[,ADDRESS...] KEY [--model NAME] [--shared] [--limited-key KEY]

Keys are read from a real SQLite store, and usage is written to it. Routing, limits, queue and metrics are on, and
garbage is collected as in a frontend.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from starlette.responses import PlainTextResponse

from corral.bus.messages import KeyUse, encode
from corral.core.access.key_limits import NO_LIMITS, KeyLimits
from corral.core.replicas.routing import ModelRoute, ReplicaId, RouteReplica, RouteSnapshot
from corral.frontend.auth.brute_force import BruteForceGuard
from corral.frontend.auth.rules import Authorizer
from corral.frontend.gateway.gateway import Gateway
from corral.frontend.gateway.in_flight import InFlight
from corral.frontend.gateway.keys import StoredKeys
from corral.frontend.gateway.limits import GatewayLimits
from corral.frontend.gateway.loads import LoadFailed
from corral.frontend.gateway.metrics import GatewayMetrics
from corral.frontend.gateway.upstream.upstream import HttpUpstream
from corral.frontend.gateway.usage_writer import UsageCounter
from corral.store.access.api_keys import AccessStore, Scope
from corral.store.open import open_database
from corral.store.serving.usage import UsageStore
from corral.system import SystemClock, SystemIds
from corral.system.gc_pauses import collect_in_small_steps
from corral.system.http_server import serve_http
from corral.system.listen import bind_socket
from corral.system.run import run_until_signal
from corral.telemetry.metrics import MetricRegistry


class NoLoads:
    async def ensure(self, model: str, *, within_s: float) -> None:
        raise LoadFailed(f"the benchmark cannot load {model!r}")


class FixedRoutes:
    def __init__(self, addresses: list[str], model: str = "bench") -> None:
        replicas = tuple(
            RouteReplica(
                id=ReplicaId(f"r{number}"), node_id=f"n{number}", node_name=f"node-{number}", slot=0, address=address,
                protocol="openai", token="process-token", generation=1, capacity=2000, revision="r",
            )
            for number, address in enumerate(addresses)
        )  # fmt: skip
        self._snapshot = RouteSnapshot(version=1, routes=(ModelRoute(model=model, replicas=replicas),))

    async def read_version(self) -> int:
        return 1

    async def read_routes(self) -> RouteSnapshot:
        return self._snapshot


HIGH_LIMITS = KeyLimits(
    requests_per_minute=10**9, tokens_per_minute=10**12, concurrent_requests=10**6, tokens_per_day=10**14,
    tokens_per_month=10**15,
)  # fmt: skip
"""Every limit is checked, and none is reached."""


async def publish(message: KeyUse) -> None:
    """As a frontend does, up to the bus."""
    encode(message)


async def main(options: argparse.Namespace, directory: Path) -> None:
    clock, ids = SystemClock(), SystemIds()
    listener = bind_socket("127.0.0.1", options.port, setting="PORT", shared=options.shared)
    database = await open_database(f"sqlite://{directory}/bench.db", connections=2, clock=clock, ids=ids)
    store = AccessStore(database)
    for name, key, limits in (("bench", options.key, NO_LIMITS), ("limited", options.limited_key, HIGH_LIMITS)):
        if key:
            await store.add_key(id=ids.uuid(), name=name, scope=Scope.USER, key=key, actor="bench", limits=limits)
    keys = StoredKeys(store, Authorizer(store, BruteForceGuard(clock), clock=clock, auth=True), auth=True)
    usage = UsageCounter(UsageStore(database), writer="bench")
    async with HttpUpstream() as upstream, asyncio.TaskGroup() as tasks:
        gateway = Gateway(
            keys=keys, routes=FixedRoutes(options.addresses.split(","), options.model), upstream=upstream,
            inflight=InFlight("bench", run="1"), metrics=GatewayMetrics(MetricRegistry()), loads=NoLoads(), drivers={},
            clock=clock,
            draw=ids.draw, limits=GatewayLimits(), usage=usage,
        )  # fmt: skip
        async with gateway:
            tasks.create_task(keys.follow())
            tasks.create_task(gateway.table.follow())
            tasks.create_task(usage.run())
            tasks.create_task(gateway.meters.keep_publishing(publish))
            tasks.create_task(gateway.meters.keep_reading_sums(UsageStore(database), keys.has_budgets))
            tasks.create_task(collect_in_small_steps())
            await serve_http(PlainTextResponse("the app"), listener, raw_handler=gateway)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("addresses")
    parser.add_argument("key")
    parser.add_argument("--model", default="bench")
    parser.add_argument("--limited-key", default="", help="a second key, which has every kind of limit")
    parser.add_argument("--shared", action="store_true", help="listen beside other processes on the same port")
    with tempfile.TemporaryDirectory() as directory:
        arguments = parser.parse_args()
        run_until_signal(lambda: main(arguments, Path(directory)))
