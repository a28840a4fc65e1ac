"""Replication survives every mixture of faults that a seed makes, and a missing safeguard is noticed."""

import asyncio
import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import structlog

from corral.core.replicas.replica import ReplicaState
from sim.loop import run_virtually
from sim.world import World

Play = Callable[[World], Awaitable[None]]
SEEDS = int(os.environ.get("CORRAL_SIM_SEEDS", "2"))
FIRST = int(os.environ.get("CORRAL_SIM_FIRST", "1"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def simulate(seed: int, directory: Path, *, play: Play = World.run, machines: int = 4, ablate: str = "") -> World:
    directory.mkdir(parents=True, exist_ok=True)

    async def run() -> World:
        world = World(seed, directory, machines=machines, ablate=ablate)
        try:
            await play(world)
        except BaseException:
            print(f"seed {seed}:", *world.lines[-60:], sep="\n")
            raise
        finally:
            await world.database.close()
        return world

    return run_virtually(seed, run())


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_is_desired_is_what_runs_after_any_faults(seed: int, tmp_path: Path) -> None:
    world = simulate(seed, tmp_path)
    print(f"seed {seed}: {world.checkers.commits} commits in {world.now_s():.0f} virtual seconds")


def test_a_seed_gives_the_same_run_again(tmp_path: Path) -> None:
    assert simulate(FIRST, tmp_path / "one").trace == simulate(FIRST, tmp_path / "two").trace


@pytest.mark.parametrize("safeguard", ["ask", "table"])
def test_a_missing_safeguard_is_noticed(safeguard: str, tmp_path: Path) -> None:
    for seed in range(1, 21):
        try:
            simulate(seed, tmp_path / str(seed), ablate=safeguard)
        except AssertionError as broken:
            print(f"noticed with seed {seed}: {broken}")
            return
    raise AssertionError("no seed noticed that it is gone")


def test_a_load_without_a_sign_of_life_is_called_off_and_goes_elsewhere(tmp_path: Path) -> None:
    """INV-34, INV-35."""

    async def play(world: World) -> None:
        first, other = world.workers
        first.starts_in_s = math.inf
        await world.begin()
        await asyncio.sleep(30)
        await world.scale("gamma", 1, 1)
        await asyncio.sleep(280)
        assert first.processes, "it was given to the machine that hangs"
        assert not first.cancelled, "silence is borne for the window of the step"
        await asyncio.sleep(120)
        [row] = await world.truth.replicas.read_all()
        assert (row.node_id, row.state) == (other.node_id, ReplicaState.READY)
        assert first.cancelled, "the work is called off"
        world.end()

    simulate(1, tmp_path, play=play, machines=2)


def test_a_load_that_shows_life_may_take_as_long_as_it_takes(tmp_path: Path) -> None:
    """INV-34."""

    async def play(world: World) -> None:
        [machine] = world.workers
        machine.starts_in_s, machine.shows_progress = 1200.0, True
        await world.begin()
        await asyncio.sleep(30)
        await world.scale("gamma", 1, 1)
        await asyncio.sleep(1100)
        assert not machine.cancelled
        await asyncio.sleep(200)
        [row] = await world.truth.replicas.read_all()
        assert row.state is ReplicaState.READY
        world.end()

    simulate(1, tmp_path, play=play, machines=1)


def test_what_is_in_use_is_rebuilt_also_where_only_a_maximum_is_set(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        await world.begin()
        await asyncio.sleep(30)
        await world.scale("gamma", 0, 2)
        assert await world.ask("gamma", within_s=60)
        [row] = await world.truth.replicas.read_all()
        dead = world.find_worker(row.node_id)
        assert dead is not None
        dead.kill(with_processes=True)
        await asyncio.sleep(180)
        [again] = await world.truth.replicas.read_all()
        assert (again.state, again.node_id == row.node_id) == (ReplicaState.READY, False)
        world.end()

    simulate(1, tmp_path, play=play, machines=2)
