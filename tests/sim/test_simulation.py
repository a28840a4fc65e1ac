"""Replication survives every mixture of faults that a seed makes, and a missing safeguard is noticed."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from sim.loop import run_virtually
from sim.world import World

SEEDS = int(os.environ.get("CORRAL_SIM_SEEDS", "4"))
FIRST = int(os.environ.get("CORRAL_SIM_FIRST", "1"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def simulate(seed: int, directory: Path, *, ablate: str = "") -> World:
    directory.mkdir(parents=True, exist_ok=True)

    async def run() -> World:
        world = World(seed, directory, ablate=ablate)
        try:
            await world.run()
        except BaseException:
            print(f"seed {seed}:", *world.lines[-60:], sep="\n")
            raise
        finally:
            await world.database.close()
        return world

    return run_virtually(seed, run())


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_is_wanted_is_what_runs_after_any_faults(seed: int, tmp_path: Path) -> None:
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
