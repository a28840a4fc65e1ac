"""A plugin of pytest: a test that leaves a task behind fails, and so does a file that leaves anything else.

Registered by tests/conftest.py, of which pytest would ask nothing where a fixture of the whole run is set up."""

import asyncio
import gc
from collections.abc import Generator

import pytest
import uvloop

from harness import leaks, streams

LEFT = pytest.StashKey[leaks.Leaks]()
RUNNERS = {f"_{scope}_scoped_runner" for scope in ("function", "class", "module", "package", "session")}
"""Fixtures of pytest-asyncio that hold the event loops."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope in ("session", "package"):
        with request.config.stash[LEFT].expecting():
            return (yield)
    made = yield
    if fixturedef.argname in RUNNERS:
        assert isinstance(made, asyncio.Runner)
        # After the test and all that uses the loop, and before the runner cancels what is left.
        fixturedef.addfinalizer(lambda: refuse_tasks(request, made))
    return made


def refuse_tasks(request: pytest.FixtureRequest, runner: asyncio.Runner) -> None:
    runner.run(streams.close_all())
    left = request.config.stash[LEFT].find_tasks(runner)
    assert not left, f"{request.node.name} leaves behind: {'; '.join(left)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """After the last test of a file, when its fixtures have given back all that they hold."""
    left = item.config.stash[LEFT]
    is_last = nextitem is None or nextitem.path != item.path
    try:
        done = yield
        left.note(item.name)
        found = left.find() if is_last else []
        assert not found, f"{item.path.name} leaves behind: {'; '.join(found)}"
        return done
    finally:
        if is_last:
            left.begin_file()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    uvloop.new_event_loop().close()  # libuv keeps a pipe for signals from its first loop on
    gc.freeze()  # what was imported stays: collections after each file need not look at it
    directory = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    within_s = session.config.getoption("--settle-within")
    session.config.stash[LEFT] = leaks.Leaks(directory, settle_within_s=within_s)
    session.config.stash[LEFT].begin_file()
