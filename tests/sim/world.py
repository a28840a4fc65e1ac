"""Frontends, machines and a store under one seed: chaos, healing, and what must hold throughout and at the end."""

import asyncio
import hashlib
import random
from collections.abc import Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from corral.bus.client import BusMessage, Handler
from corral.bus.messages import BlobPeer
from corral.controller.nodes.health import HealthController
from corral.controller.nodes.refused_messages import RefusedMessages
from corral.controller.nodes.reports import Reports
from corral.controller.replicas.wiring import Replication
from corral.core.backends.build import BuildRef, BuildResolution, ResolvedBackend
from corral.core.backends.variants import Unresolved
from corral.core.nodes.node import Node, NodeId
from corral.core.nodes.presence import Limits
from corral.core.replicas.scaling import ScalingPace, Scheduling
from corral.store.stores import Stores
from corral.system.loops import keep_running
from corral.telemetry.metrics import MetricRegistry
from harness.reconcile import make_runtime
from sim.checkers import Checkers
from sim.machines import DIGEST, Worker
from sim.ports import HostBus, HostDatabase, SimClock, SimDatabase, SimIds, find_handlers

MODELS = ("alpha", "beta", "gamma")
CONFIG = "name: {name}\nbackend: engine\ncontext_size: {context}\nparameters: {{model: {name}.gguf}}\n"
FAULTS = ("kill", "wipe", "cut", "crash", "crash", "frontend", "store", "edit", "scale")
CHAOS_S = 300.0
CONVERGE_S = 420.0
"""A back-off of five minutes is the longest there is, and a repair may take one more."""


BUILD = ResolvedBackend(
    build=BuildRef(name="engine", uris=("oci://engine",), digest=DIGEST, version="1"), reason="the only one"
)


class Builds:
    async def recall(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, BuildResolution | Unresolved]:
        return {node.id: BUILD for node in nodes}

    async def find_names(self, reference: str, nodes: Iterable[Node]) -> Mapping[NodeId, frozenset[str]]:
        return {node.id: frozenset({BUILD.build.name}) for node in nodes}

    def galleries_text(self, reference: str) -> str:
        return ""


class NoPeers:
    async def find(self, digest: str | None, *, besides: str) -> list[BlobPeer]:
        return []

    async def among(self, nodes: Collection[str], *, besides: str) -> list[BlobPeer]:
        return []


class NoTraffic:
    def total(self, replica: Any) -> int:
        return 0

    def queue_depth(self, model: str) -> int:
        return 0

    def idle_s(self, replica: Any) -> float | None:
        return None


class Frontend:
    def __init__(self, world: "World", name: str, run: int) -> None:
        self.world, self.name = world, name
        self.stores = world.make_stores(HostDatabase(world, f"{name} {run}"))
        self.bus = HostBus(world, f"{name} {run}")
        ids = SimIds(f"{world.seed}:{name}:{run}")
        runtime = make_runtime(self.stores, name, clock=world.clock, ids=ids)
        self._reports = Reports(
            runtime,
            bus=self.bus,
            observed=self.stores.observed,
            nodes=self.stores.nodes,
            refused=RefusedMessages(self.stores.nodes, world.clock, MetricRegistry()),
            clock=world.clock,
        )
        self._health = HealthController(
            runtime,
            store=self.stores.health,
            bus=self.bus,
            limits=Limits(),
            every_s=5.0,
            clock=world.clock,
            on_change=self._changed,
            also=_nothing,
        )
        self.replication = Replication(
            runtime,
            stores=self.stores,
            bus=self.bus,
            builds=Builds(),
            peers=NoPeers(),
            traffic=NoTraffic(),
            grpc=None,
            stager=None,
            shared_models=False,
            request_report=self._reports.request_report,
            notify_others=self._changed,
            pace=ScalingPace(),
            orphan_grace_s=20.0,
            lease_s=60.0,
            clock=world.clock,
            ids=ids,
        )
        self._reports.listen(self.replication.controller.on_report)
        self._reports.on_routes(self.replication.changed)
        self._tasks: list[asyncio.Task[None]] = []

    async def _changed(self) -> None:
        self.world.hint()

    def notify(self) -> None:
        self._health.loop.notify()
        self._reports.silent_nodes.notify()
        self.replication.notify()

    async def start(self) -> None:
        await self._reports.start()
        await self.replication.start()
        loops = {
            "health": self._health.loop.run,
            "reports": self._reports.run,
            "silent_nodes": self._reports.silent_nodes.run,
            **self.replication.loops,
        }
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(keep_running(name, work), name=f"{self.name} {name}") for name, work in loops.items()
        ]

    def kill(self) -> None:
        """Its way to store and bus is gone before the first `finally` runs: nothing it still does is seen."""
        for task in self._tasks:
            task.cancel()


async def _nothing() -> None:
    """No upkeep in here."""


class World:
    def __init__(self, seed: int, directory: Path, *, machines: int = 4, ablate: str = "") -> None:
        self.seed, self.ablate = seed, ablate
        self._streams = {name: random.Random(f"{seed}:{name}") for name in ("net", "store", "proc", "work", "nemesis")}
        self.clock, self.ids = SimClock(), SimIds(f"{seed}:ids")
        self.chaos, self.store_away = False, False
        self.frontends: dict[str, Frontend] = {}
        self.workers = [Worker(self, f"w{number}") for number in range(machines)]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pids = iter(range(1, 1_000_000))
        self._runs = iter(range(1, 1_000_000))
        self._trace = hashlib.sha256()
        self.lines: list[str] = []
        self.checkers = Checkers(self)
        self.database = SimDatabase(directory / f"{seed}.db", self.clock, self.ids, self._committed)
        self.truth = Stores(self.database, self.ids)

    # For everybody

    def now_s(self) -> float:
        return self.clock.monotonic_s()

    def draw(self, stream: str) -> float:
        return self._streams[stream].random()

    def next_pid(self) -> int:
        return next(self._pids)

    def note(self, line: str) -> None:
        line = f"{self.now_s():9.3f} {line}"
        self.lines.append(line)
        self._trace.update(line.encode())

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.note(f"{task.get_name()} failed: {error!r}")

    def make_stores(self, database: HostDatabase) -> Stores:
        stores = Stores(database, self.ids)
        if self.ablate:
            self.checkers.ablate(stores, database)
        return stores

    def any_stores(self) -> Stores | None:
        names = sorted(self.frontends)
        return self.frontends[self._streams["net"].choice(names)].stores if names else None

    def find_worker(self, node_id: str) -> Worker | None:
        return next((worker for worker in self.workers if worker.node_id == node_id), None)

    def publish(self, subject: str, data: bytes) -> None:
        for name in sorted(self.frontends):
            if self.chaos and self.draw("net") < 0.05:
                continue
            for handler in find_handlers(self.frontends[name].bus.handlers, subject):
                self.spawn(self._deliver(handler, BusMessage(subject, data)), name=f"{name} hears {subject}")

    async def _deliver(self, handler: Handler, message: BusMessage) -> None:
        await asyncio.sleep(self.draw("net") * 0.1)
        await handler(message)

    def hint(self) -> None:
        for frontend in self.frontends.values():
            frontend.notify()

    def _committed(self) -> None:
        self.checkers.after_commit()

    # Faults

    async def start_frontend(self, name: str) -> None:
        run = next(self._runs)
        frontend = Frontend(self, name, run)
        self.frontends[f"{name} {run}"] = frontend
        await frontend.start()

    def kill_frontend(self, host: str) -> None:
        self.frontends.pop(host).kill()

    async def _strike(self) -> None:
        """One fault, and its end after a while."""
        chance = self._streams["nemesis"]
        worker = chance.choice(self.workers)
        kind = chance.choice(FAULTS)
        pause_s = chance.choice((1.0, 5.0, 20.0, 90.0))
        self.note(f"{kind} {worker.name} for {pause_s:g} s")
        if kind in ("kill", "wipe") and worker.alive:
            worker.kill(with_processes=kind == "wipe")
            await asyncio.sleep(pause_s)
            worker.start()
        elif kind == "cut":
            worker.cut()
            await asyncio.sleep(pause_s)
            worker.mend()
        elif kind == "crash" and (ready := sorted(k for k, p in worker.processes.items() if p.state == "ready")):
            worker.crash_process(chance.choice(ready))
        elif kind == "frontend" and len(self.frontends) > 1:
            host = chance.choice(sorted(self.frontends))
            self.kill_frontend(host)
            await asyncio.sleep(min(pause_s, 20))
            await self.start_frontend(host.split(" ")[0])
        elif kind == "store":
            self.store_away = True
            await asyncio.sleep(min(pause_s, 20))
            self.store_away = False
        elif kind == "edit":
            text = CONFIG.format(name=chance.choice(MODELS), context=chance.choice((256, 512)))
            await self.truth.models.save(text, "ann")
            self.hint()
        elif kind == "scale":
            low = chance.choice((0, 1, 2))
            await self.scale(chance.choice(MODELS), low, max(1, low, chance.choice((1, 2, 3))))

    async def scale(self, model: str, low: int, high: int) -> None:
        self.checkers.wanted_changed(model)
        await self.truth.scheduling.save(
            Scheduling(model=model, min_replicas=low, max_replicas=high), actor="ann", ids=self.ids
        )
        self.hint()

    async def ask(self, model: str, *, within_s: float) -> Any:
        if not self.frontends:
            return None
        host = self._streams["work"].choice(sorted(self.frontends))
        settled = await self.frontends[host].replication.coordinator.load(model, within_s=within_s)
        if settled.cause is not None or settled.progress is not None:
            self.note(f"asked for {model} at {host}: {settled}")
        return settled

    async def _keep_asking(self, model: str) -> None:
        """As a lane does that finds no replica in its table, which may be older than the store."""
        while self.frontends:
            self.spawn(self.ask(model, within_s=30), name=f"ask for {model}")
            await asyncio.sleep(1 + 4 * self.draw("work"))

    # The run

    async def begin(self) -> None:
        await self.database.migrate()
        for name in ("a", "b"):
            await self.start_frontend(name)
        for worker in self.workers:
            worker.start()
        for name in MODELS:
            await self.truth.models.save(CONFIG.format(name=name, context=256), "ann")

    async def run(self) -> None:
        await self.begin()
        await self.scale("alpha", 2, 2)
        await self.scale("beta", 0, 2)
        await self.scale("gamma", 1, 1)
        for name in MODELS:
            self.spawn(self._keep_asking(name), name=f"clients of {name}")
        await asyncio.sleep(60)
        self.chaos = True
        until_s = self.now_s() + CHAOS_S
        while self.now_s() < until_s:
            self.checkers.raise_broken()
            self.spawn(self._strike(), name="strike")
            await asyncio.sleep(1 + 20 * self.draw("nemesis"))
        await self._heal()
        await asyncio.sleep(CONVERGE_S)
        await self.checkers.at_rest(self.truth)
        for name in MODELS:
            settled = await self.ask(name, within_s=60)
            assert settled is not None
            assert settled.cause is None, settled
            assert settled.progress is None, settled
        self.end()

    def end(self) -> None:
        for host in sorted(self.frontends):
            self.kill_frontend(host)

    async def _heal(self) -> None:
        """Faults that are under way end by themselves; here they only must not begin anew."""
        self.note("heal")
        self.chaos = False
        await asyncio.sleep(120)
        self.store_away = False
        for worker in self.workers:
            worker.mend()
            if not worker.alive:
                worker.start()
        while len(self.frontends) < 2:
            missing = {"a", "b"} - {host.split(" ")[0] for host in self.frontends}
            await self.start_frontend(min(missing))
