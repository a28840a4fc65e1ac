"""`corral demo`: three workers on this machine, a model on two of them, and one killed in the middle of a sentence."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from corral.cli.client.api import Api
from corral.cli.client.conversation import Answered, ask
from corral.cli.commands.watch_operation import exit_code_of, wait_for
from corral.cli.program_name import command
from corral.core.errors import CorralError, NotFound, Unavailable
from corral.core.sizes import format_bytes
from corral.roles.up.children import UpChildPlan
from corral.roles.up.supervisor import STOP_WITHIN_S, WORKER_STOP_WITHIN_S, ComponentFailed, UpChild, print_line
from corral.settings.roles import UpSettings
from corral.settings.values import data_home
from corral.system import Clock, Disk, Ids, SystemClock, SystemDisk, SystemIds
from corral.system.children import spawn_child
from corral.system.clock import pause
from corral.system.listen import bind_socket
from corral.system.run import run_until_signal
from corral.telemetry.logs import configure_logs
from corral.worker.processes.tree import kill_marked

MODEL, BACKEND = "smollm2", "llama-cpp"
NODES = ("demo-1", "demo-2", "demo-3")
REPLICAS = 2
FIRST_QUESTION = "In one sentence: what is a corral?"
SECOND_QUESTION = "Tell me why horses live in groups."
KILLED_AFTER_WORDS = 12
READY_WITHIN_S = 60.0
LOADED_WITHIN_S = 300.0
REBUILT_WITHIN_S = 120.0
TRACED_WITHIN_S = 10.0


@click.command("demo")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Data directory. Default: `demo` in Corral's data directory.",
)
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep running at the end until a key is pressed. Default: only on a terminal.",
)
def demo_command(data_dir: Path | None, keep: bool | None) -> None:
    """Show Corral on this machine in about a minute.

    Starts three workers, installs a backend on them, runs a model on two of them, and kills the one that answers in the
    middle of its sentence: the other one continues it."""
    configure_logs(level="warning", format="auto", role="demo")
    directory = (data_dir or data_home() / "demo").expanduser().absolute()
    stay = sys.stdin.isatty() if keep is None else keep
    demo = Demo(directory, stay=stay, clock=SystemClock(), ids=SystemIds(), disk=SystemDisk())
    run_until_signal(demo.run)


def _print(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()


class Demo:
    def __init__(self, directory: Path, *, stay: bool, clock: Clock, ids: Ids, disk: Disk) -> None:
        self._directory, self._stay, self._clock, self._disk = directory, stay, clock, disk
        self._began_s = clock.monotonic_s()
        listen, bus_port = f"127.0.0.1:{_free_port()}", _free_port()
        self._settings = UpSettings(
            data_dir=directory,
            listen=listen,
            bus_port=bus_port,
            heartbeat_interval_s=1.0,
            suspect_after_s=3.0,
            offline_after_s=6.0,
            health_interval_s=1.0,
        )
        self._plan = UpChildPlan(self._settings, clock=clock, ids=ids, disk=disk)
        self._url = f"http://{listen}"
        self._components: dict[str, UpChild] = {}

    async def run(self) -> None:
        with self._disk.hold(self._directory, "demo"):
            try:
                await self._start()
                await asyncio.to_thread(self._show)
            finally:
                print_line("\nStopping ...")
                await self._stop()
                print_line(f"Everything has stopped. {_kept(self._directory, self._disk)}")

    # Processes

    async def _start(self) -> None:
        print_line("Starting a message bus, a frontend and three workers on this machine.")
        for component in self._plan.servers():
            self._components[component.name] = component
        for number, name in enumerate(NODES):
            first = 20000 + 1000 * number
            ports = f"--backend-ports={first}-{first + 999}"
            self._components[name] = self._plan.worker(name, name, self._directory / name, ports)
        for component in self._components.values():
            component.child = await spawn_child(component.command, environment=os.environ, log_path=component.log_path)

    async def _stop(self) -> None:
        workers = [self._components[name] for name in NODES if name in self._components]
        await asyncio.gather(*(_stop_component(component, WORKER_STOP_WITHIN_S) for component in workers))
        for name in ("frontend", "bus"):
            if name in self._components:
                await _stop_component(self._components[name], STOP_WITHIN_S)
        for name in NODES:
            kill_marked(self._directory / name / "run")

    def _kill_node(self, name: str) -> None:
        child = self._components[name].child
        if child is not None:
            child.kill()
        kill_marked(self._directory / name / "run")

    # Steps

    def _show(self) -> None:
        api = self._connect()
        nodes = self._wait("three healthy nodes", READY_WITHIN_S, lambda: _healthy(api))
        print_line(f"{len(nodes)} nodes are healthy after {self._elapsed()}. Watch them in the web UI:")
        print_line(f"  Web UI    {self._url}")
        print_line(f"  Admin key {self._directory / 'keys' / 'admin.key'}\n")
        self._install_backend(api)
        self._load_model(api)
        answered = self._ask(api, FIRST_QUESTION)
        print_line(f"\nFirst token {self._first_token(answered)} after the start of the demo.\n")
        print_line("Now the machine that answers is killed in the middle of its sentence.")
        victim, died_s, request_id = self._ask_and_kill(api)
        explained = self._wait("the trace of the request", TRACED_WITHIN_S, lambda: _ended(api, request_id))
        print_line(f"\n{describe_continuation(explained, victim)}\n")
        now = self._wait(
            "the replacement replica", REBUILT_WITHIN_S, lambda: _rebuilt(_serving(api, nodes), without=victim)
        )
        took_s = self._clock.monotonic_s() - died_s
        print_line(f"{took_s:.1f} s after {victim} was killed, {MODEL} runs on {' and '.join(now)}.\n")
        print_line(f"Next: {command('up')}")
        if self._stay:
            click.pause(f"\nThe web UI stays open at {self._url}. Press any key to end the demo.")

    def _install_backend(self, api: Api) -> None:
        print_line(f"Installing {BACKEND} from PyPI on all three nodes:")
        job = api.call("POST", "api", "backends", "install", BACKEND, within_s=60)
        _, outcome = wait_for(api, job["jobID"], timeout_s=LOADED_WITHIN_S)
        if exit_code_of([outcome]):
            raise Unavailable(f"{BACKEND} was not installed; see the logs in {self._directory / 'logs'}")

    def _load_model(self, api: Api) -> None:
        print_line(f"\nLoading {MODEL} on two of the three nodes:")
        try:
            api.call("GET", "api", "models", MODEL)
        except NotFound:
            api.call("POST", "api", "models", "install", body={"name": MODEL})
        policy = {"model_name": MODEL, "min_replicas": REPLICAS, "max_replicas": REPLICAS}
        api.call("POST", "api", "nodes", "scheduling", body=policy)
        printed = ""
        deadline_s = self._clock.monotonic_s() + LOADED_WITHIN_S
        while len(serving := _serving(api, _names(api))) < REPLICAS:
            now = _loading(api)
            if now and now != printed:
                print_line(f"  {now}")
                printed = now
            if self._clock.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{MODEL} was not loaded in {LOADED_WITHIN_S:.0f} s; see the logs in {self._directory / 'logs'}"
                )
            self._check_components()
            pause(0.1)
        print_line(f"{MODEL} runs on {' and '.join(serving)} after {self._elapsed()}.\n")

    def _ask(
        self,
        api: Api,
        question: str,
        *,
        on_text: Callable[[str], None] = _print,
        on_node: Callable[[str], None] = lambda _name: None,
        max_tokens: int = 60,
    ) -> Answered:
        print_line(f"You:    {question}")
        click.echo(f"{MODEL}: ", nl=False)
        body = {
            "model": MODEL,
            "max_tokens": max_tokens,
            "temperature": 0,
            "messages": [{"role": "user", "content": question}],
        }
        answered = ask(api, self._clock, body, on_text=on_text, on_reasoning=_print, on_node=on_node)
        print_line()
        if not answered.text.strip():
            raise Unavailable(f"{MODEL} gave no answer; see the logs in {self._directory / 'logs'}")
        self._asked_s = self._clock.monotonic_s() - answered.took_s
        return answered

    def _ask_and_kill(self, api: Api) -> tuple[str, float, str]:
        """Kills the node that answers once it has said some words. Returns its name, when it was killed, and the id of
        the request."""
        serving_node, words, died_s = "", 0, 0.0

        def follow(text: str) -> None:
            nonlocal words, died_s
            _print(text)
            words += text.count(" ")
            if not died_s and words >= KILLED_AFTER_WORDS:
                died_s = self._clock.monotonic_s()
                self._kill_node(serving_node)
                _print(f" [{serving_node} is killed: its worker and everything it runs] ")

        def note(name: str) -> None:
            nonlocal serving_node
            serving_node = name

        answered = self._ask(api, SECOND_QUESTION, on_text=follow, on_node=note, max_tokens=100)
        if not died_s:
            raise Unavailable(f"{MODEL} answered with only {words} words, so there was no time to kill {serving_node}")
        return serving_node, died_s, answered.request_id

    def _first_token(self, answered: Answered) -> str:
        return f"{self._asked_s + (answered.first_after_s or 0.0) - self._began_s:.1f} s"

    def _connect(self) -> Api:
        key = self._wait("the frontend", READY_WITHIN_S, self._read_key)
        return Api(self._url, key, False, self._directory)

    def _read_key(self) -> str | None:
        found = self._disk.read(self._directory / "keys" / "admin.key")
        return found.decode().strip() if found else None

    def _wait(self, what: str, within_s: float, look: Any) -> Any:
        deadline_s = self._clock.monotonic_s() + within_s
        problem = ""
        while self._clock.monotonic_s() < deadline_s:
            self._check_components()
            try:
                if found := look():
                    return found
            except CorralError as error:
                problem = f" ({error})"
            pause(0.05)
        raise Unavailable(f"waited {within_s:.0f} s for {what}{problem}; see the logs in {self._directory / 'logs'}")

    def _check_components(self) -> None:
        for name in ("bus", "frontend"):
            child = self._components[name].child
            if child is not None and child.ended:
                raise ComponentFailed(f"the {name} exited:\n{child.read_log_tail()}")

    def _elapsed(self) -> str:
        return f"{self._clock.monotonic_s() - self._began_s:.1f} s"


def _kept(directory: Path, disk: Disk) -> str:
    """What the demo leaves on disk, and where."""
    return f"Downloads are kept for the next run: {format_bytes(disk.used_bytes(directory))} in {directory}"


async def _stop_component(component: UpChild, within_s: float) -> None:
    if component.child is not None:
        await component.child.stop(within_s=within_s)


def _free_port() -> int:
    listener = bind_socket("127.0.0.1", 0, setting="the demo's port")
    with listener:
        return int(listener.getsockname()[1])


def _names(api: Api) -> dict[str, str]:
    return {node["id"]: node["name"] for node in api.call("GET", "api", "nodes")}


def _ended(api: Api, request_id: str) -> dict[str, Any] | None:
    found: dict[str, Any] = api.call("GET", "api", "why", "requests", request_id)
    return found if found["state"] != "open" else None


def describe_continuation(explained: dict[str, Any], victim: str) -> str:
    """Who gave the rest of the answer, by the trace of its request. `victim`: the node that began it."""
    failed = [failure["node"] for failure in explained.get("failed") or ()]
    node = (explained.get("chosen") or {}).get("node")
    if explained["state"] != "answered":
        return f"The answer was not continued: {(explained.get('ending') or explained['state']).rstrip('.')}."
    if victim not in failed or node in (None, victim):
        return f"{victim} had sent its whole answer when it was killed, so there was nothing to continue."
    return f"{node} continued the answer. Its client saw one stream and no error."


def _healthy(api: Api) -> dict[str, str] | None:
    nodes = {node["id"]: node["name"] for node in api.call("GET", "api", "nodes") if node["status"] == "healthy"}
    return nodes if len(nodes) == len(NODES) else None


def _serving(api: Api, names: dict[str, str]) -> list[str]:
    loaded = api.call("GET", "api", "nodes", "models")
    return sorted(names.get(row["node_id"], row["node_id"]) for row in loaded if row["model_name"] == MODEL)


def _rebuilt(serving: list[str], *, without: str) -> list[str] | None:
    return serving if len(serving) >= REPLICAS and without not in serving else None


def _loading(api: Api) -> str:
    loads = api.call("GET", "api", "why", "models", MODEL)["loads"]
    parts = [
        f"{load['node']}: {load['state']}" + (f" {load['progress']:.0f} %" if load.get("total_bytes") else "")
        for load in loads
        if load.get("node")
    ]
    return ", ".join(sorted(parts))
