"""Figures of versions, counted once, on both databases."""

import asyncio

from corral.core.backends.serving_figures import BUCKETS, FIRST_TOKEN_BOUNDS_S, ServingFigures, VersionKey
from corral.core.nodes.node import NodeId
from corral.core.nodes.observed import Observation, ObservedProcess, ProcessStatus
from corral.store.serving.version_figures import RETENTION_MS
from corral.store.stores import Stores
from harness.databases import Rig

A = VersionKey("tiny", "node-1", "sha256:new")
B = VersionKey("tiny", "node-2", "sha256:old")


def served(requests: int, *, bucket: int = 20) -> ServingFigures:
    times = [0] * BUCKETS
    times[bucket] = requests
    return ServingFigures(requests=requests, errors=1, first_token=tuple(times), tokens_out=7, answer_ms=100)


async def test_what_several_frontends_count_adds_up_once(stores: Stores, rig: Rig) -> None:
    others = [Stores(await rig.open()) for _ in range(3)]

    async def write(number: int) -> None:
        for batch in (1, 2, 2, 1):
            await others[number].version_figures.add(f"fe{number}", batch, {A: served(5), B: served(1, bucket=30)})

    await asyncio.gather(*(write(number) for number in range(3)))
    rows = await stores.version_figures.read(digests=[A.digest, B.digest], since_ms=0)
    assert [row.key for row in rows] == [A, B]
    assert (rows[0].figures.requests, rows[0].figures.errors, rows[0].figures.streams) == (30, 6, 30)
    assert (rows[0].figures.tokens_out, rows[0].figures.answer_ms) == (42, 600)
    median = rows[1].figures.first_token_s()
    assert median is not None
    assert FIRST_TOKEN_BOUNDS_S[29] < median <= FIRST_TOKEN_BOUNDS_S[30]
    assert [row.key for row in await stores.version_figures.read(digests=[B.digest], since_ms=0)] == [B]
    assert await stores.version_figures.read(digests=[B.digest], models=["other"], since_ms=0) == []
    assert await stores.version_figures.read(digests=[], since_ms=0) == []


async def test_old_minutes_do_not_count_and_go(stores: Stores, rig: Rig) -> None:
    await stores.version_figures.add("fe", 1, {A: served(1)})
    await rig.advance(120.0)
    await stores.version_figures.add("fe", 2, {A: served(2)})
    rows = await stores.version_figures.read(digests=[A.digest], since_ms=0)
    assert [row.figures.requests for row in rows] == [3]
    await rig.advance(RETENTION_MS / 1000 - 60.0)
    await stores.version_figures.prune()
    (row,) = await stores.version_figures.read(digests=[A.digest], since_ms=0)
    assert (row.figures.requests, row.figures.streams) == (2, 2)


def process(*, restarts: int = 0, state: ProcessStatus = ProcessStatus.READY) -> ObservedProcess:
    return ObservedProcess(
        process_key="tiny#0", model="tiny", replica=0, backend="b", digest="sha256:new", state=state, restarts=restarts
    )


async def test_processes_that_ended_are_counted_once_from_reports(stores: Stores, rig: Rig) -> None:
    seen = [
        process(),
        process(state=ProcessStatus.BACKING_OFF),
        process(restarts=1, state=ProcessStatus.STARTING),
        process(restarts=1),
        process(),  # started anew, by a command
        process(restarts=1),
    ]
    for sequence, one in enumerate(seen, 1):
        observation = Observation(
            node_id=NodeId("node-1"), instance="i", epoch=1, sequence=sequence, backends=(), processes=(one,)
        )
        await stores.observed.record([observation])
        await stores.observed.record([observation])
    (row,) = await stores.version_figures.read_exits(digests=["sha256:new"], since_ms=0)
    assert (row.model, row.revision, row.node_id, row.exits) == ("tiny", "", "node-1", 2)
    assert await stores.version_figures.read_exits(digests=["sha256:old"], since_ms=0) == []
    assert await stores.version_figures.read_exits(digests=[], since_ms=0) == []
    await rig.advance(RETENTION_MS / 1000 + 60)
    await stores.version_figures.prune()
    assert await stores.version_figures.read_exits(digests=["sha256:new"], since_ms=0) == []
