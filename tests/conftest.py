"""Fixtures shared by all tests: real servers, started once per run."""

import os
import signal
import uuid
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from harness import leak_checks, programs, tiers, zygote
from harness.nats import Nats
from harness.postgres import Postgres
from harness.programs import Program

# Whole clusters of processes, and browsers: files that take a minute and more.
LONG = {"browser", "e2e", "fleet", "replicas", "commands", "conformance"}

# Beside other load, a draw or an example may take any time: Hypothesis builds its table of characters on the first one.
settings.register_profile("corral", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("corral")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full-length",
        action="store_true",
        help="with default limits and faults as long as promised, where a test can do both: minutes instead of seconds",
    )
    parser.addoption("--fast", action="store_true", help="only tests that start no process")
    parser.addoption(
        "--settle-within",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="what a test leaves behind longer than this, threads and processes among it, is a leak (default: 20)",
    )


@pytest.fixture
def full_length(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full-length"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(leak_checks)
    zygote.is_used = programs.one_thread_each = True
    # Plain tracebacks: a picture of one, with all variables, takes a second where the processor is slow.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be all that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, lest one is left at the end that all other processes wait for."""
    if config.getoption("--fast"):
        items[:] = filter(tiers.is_fast, items)
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))


PROGRAMS = pytest.StashKey[int]()
"""How many programs had been started before the test."""
LOG_TAIL_LINES = 25


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[PROGRAMS] = len(Program.started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows the end of the logs of what a failed test started: its directory may be gone when somebody looks."""
    report = yield
    if report.failed:
        for program in Program.started[item.stash.get(PROGRAMS, len(Program.started)) :]:
            title = f"{program.log.name} (exit status {program.process.poll()})"
            report.sections.append((title, "\n".join(program.output().splitlines()[-LOG_TAIL_LINES:])))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    if session.config.getoption("--fast") and not session.config.getoption("numprocesses", None):
        tiers.refuse_processes()


def pytest_sessionfinish() -> None:
    for program in Program.started:
        if program.process.poll() is None:
            program.kill()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    directory = tmp_path_factory.mktemp("postgres")
    # The server runs as another user and must be able to walk down to its directory.
    for parent in (directory, *directory.parents):
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o777 == 0o700:
            parent.chmod(0o711)
    server = Postgres(directory)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    return postgres.create(f"test_{uuid.uuid4().hex}")


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    server = Nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.stop()
