"""Engines through Corral with its defaults, against the same engines started by hand with their best settings.

    ./dev bench engines
    python benchmarks/engines.py [--weights FILE.gguf] [--chats 64] [--rounds 5]

Two engines: llama.cpp, the real one, and a mock with vLLM's flags and metrics that gives each running request a token
every 50 ms. For llama.cpp, the best number of slots for an engine by hand is found first. All chats are streamed. Two
cases: many chats at the same time, which shows throughput and mean latency, and a few that need no queue, which shows
the latency of a request on its own.

Engines, and Corral's worker with them, have one half of the processors. Frontend and client have the other half, as on
machines of their own: otherwise the gateway would take time from the engine, and each engine by hand would have more.
Both are measured in turns. A round counts if other programs left the machine alone before and after it. The ratios are
the medians of these rounds.
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness import vllm_mock
from harness.cluster import Cluster
from harness.engine import give_engine, pull_engine
from harness.nats import Nats
from harness.oci_registry import OciRegistry
from harness.ports import free_port
from harness.programs import Admin, call, clean_environment
from harness.tiny_model import Shelf, write_weights
from harness.waiting import wait_until

GOAL = 0.98
SLOTS_BY_HAND = (4, 8, 16, 32)
ANSWER_WITHIN_S = 600.0
CORES = sorted(os.sched_getaffinity(0))
ENGINE_CORES = CORES[: max(1, len(CORES) // 2)]
OTHER_CORES = CORES[len(ENGINE_CORES) :] or CORES
FEW_EACH = 2
"""A few chats have so many turns more, so that a round is not over at once."""
QUIET_SHARE = 0.15
"""The share of the processors that other programs may use."""
SIZES = {"size": 512, "layers": 6, "heads": 8, "hidden": 1408}
"""Of a model with 20 million parameters: as fast on one processor as a small model on a small GPU."""


@dataclass(frozen=True)
class Figures:
    tokens_per_s: float
    latency_s: float
    """The mean. The middle of a few waves of requests would depend on the number of waves."""
    first_token_s: float
    engine_s: float
    """The engine's processor time for each token."""

    def told(self) -> str:
        return (
            f"{self.tokens_per_s:8.0f} tokens/s   latency {self.latency_s * 1000:7.0f} ms"
            f"   first token {self.first_token_s * 1000:7.0f} ms   engine {self.engine_s * 1000:6.2f} ms/token"
        )


@dataclass(frozen=True)
class Served:
    url: str
    key: str
    model: str
    engine: int
    """The process."""


async def chat(served: Served, number: int, max_tokens: int) -> tuple[int, float, float]:
    """Tokens, and the seconds to the first and to the last."""
    body = (
        f'{{"model": "{served.model}", "stream": true, "max_tokens": {max_tokens}, "temperature": 0,'
        f' "ignore_eos": true, "messages": [{{"role": "user", "content": "story number {number}"}}]}}'
    ).encode()
    host, _, port = served.url.removeprefix("http://").partition(":")
    began_s, first_s, tokens = time.perf_counter(), 0.0, 0
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {served.key}\r\n"
            f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{served.url} answered {(status + await reader.read())[:400]!r}")
        while (line := await reader.readline()) and line != b"data: [DONE]\n":
            if line.startswith(b"data: {") and b'"content":' in line and b'"content":null' not in line:
                first_s = first_s or time.perf_counter() - began_s
                tokens += 1
    finally:
        writer.close()
    return tokens, first_s, time.perf_counter() - began_s


async def measure(served: Served, *, chats: int, each: int, max_tokens: int) -> Figures:
    async def talk(number: int) -> list[tuple[int, float, float]]:
        return [await chat(served, number * each + turn, max_tokens) for turn in range(each)]

    began_s, used_s = time.perf_counter(), processor_s(served.engine)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        found = [one for talked in await asyncio.gather(*map(talk, range(chats))) for one in talked]
    took_s = time.perf_counter() - began_s
    tokens = sum(tokens for tokens, _, _ in found)
    return Figures(
        tokens_per_s=tokens / took_s,
        latency_s=statistics.mean(latency_s for _, _, latency_s in found),
        first_token_s=statistics.mean(first_s for _, first_s, _ in found),
        engine_s=(processor_s(served.engine) - used_s) / tokens,
    )


def processor_s(pid: int) -> float:
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def on_engine_cores() -> Iterator[None]:
    """Programs that are started within it have one half of the processors; this one and all others the other half."""
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, ENGINE_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def busy_share(within_s: float = 0.5) -> float:
    """The share of all processors that is in use. Programs under test are idle meanwhile, and programs of a low
    priority give way."""

    def read() -> tuple[int, int]:
        times = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(times), times[1] + times[3] + times[4]  # niced, idle, and waiting for a disk

    (total, idle), _ = read(), time.sleep(within_s)
    total_after, idle_after = read()
    return 1 - (idle_after - idle) / max(1, total_after - total)


@contextmanager
def by_hand(command: list[str], port: int, model: str) -> Iterator[Served]:
    with on_engine_cores():
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment()
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_healthy(url), what="the engine is ready", within_s=120)
        yield Served(url, "", model, process.pid)
    finally:
        process.kill()
        process.wait(30)


def _is_healthy(url: str) -> bool:
    try:
        return call("GET", f"{url}/health").status == 200
    except OSError:
        return False


def llama_cpp_by_hand(home: Path, weights: Path, slots: int, context: int) -> tuple[list[str], int]:
    directory, port = next((home / "backends").glob("*/current/corral_launch.py")).parent, free_port()
    command = [
        str(directory / "bin" / "python"), "-I", str(directory / "corral_launch.py"), "--host=127.0.0.1",
        f"--port={port}", f"--model={weights}", "--name=m", f"--slots={slots}", f"--context={context}",
        f"--threads={len(ENGINE_CORES)}",
    ]  # fmt: skip
    return command, port


def compare(name: str, corral: Served, direct: Served, options: argparse.Namespace) -> float:
    """The lowest of the ratios: throughput, and latency the other way round."""

    def run(served: Served, chats: int) -> Figures:
        each = options.each * (1 if chats == options.chats else FEW_EACH)
        return asyncio.run(measure(served, chats=chats, each=each, max_tokens=options.tokens))

    for served in (corral, direct):  # warm, and the gateway has learnt what the engine takes
        run(served, options.chats)
    lowest = 1.0
    for chats in (options.chats, options.few):
        print(f"{name}, {chats} chats at the same time, {options.tokens} tokens each")
        quiet: list[tuple[Figures, Figures]] = []
        noisy: list[tuple[Figures, Figures]] = []
        while len(quiet) < options.rounds and len(noisy) < options.rounds * 3:
            before = busy_share()
            if (len(quiet) + len(noisy)) % 2:  # neither is always the first
                ours, theirs = run(corral, chats), run(direct, chats)
            else:
                theirs, ours = run(direct, chats), run(corral, chats)
            others = max(before, busy_share())
            (noisy if others > QUIET_SHARE else quiet).append((theirs, ours))
            print(f"  by hand  {theirs.told()}")
            print(f"  Corral   {ours.told()}   others use {others:.0%} of the machine", flush=True)
        counted = quiet if len(quiet) == options.rounds else [*quiet, *noisy]
        throughput = statistics.median(ours.tokens_per_s / theirs.tokens_per_s for theirs, ours in counted)
        latency = statistics.median(theirs.latency_s / ours.latency_s for theirs, ours in counted)
        first = statistics.median(theirs.first_token_s / ours.first_token_s for theirs, ours in counted)
        of = (
            f"of {len(quiet)} quiet rounds" if counted is quiet else f"of {len(counted)} rounds, most of them NOT quiet"
        )
        print(f"  ratio    throughput {throughput:.3f}   latency {latency:.3f}   first token {first:.3f}   {of}")
        lowest = min(lowest, throughput, latency)
    return lowest


def serve(admin: Admin, name: str, config: str, worker: Path) -> Served:
    added = admin.call("POST", "/api/models", body={"config": config})
    assert added.status == 201, added.body
    asked = {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
    answer = admin.call("POST", "/v1/chat/completions", body=asked, within_s=300)
    assert answer.status == 200, answer.body
    return Served(admin.url, admin.key, name, find_engine(worker))


def find_engine(worker: Path) -> int:
    """The newest process that runs one of the worker's backends."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if any(one.startswith(f"{worker}/backends/".encode()) for one in arguments[:4]):
            found.append(int(entry.name))
    return max(found)


def run(directory: Path, options: argparse.Namespace, opened: ExitStack) -> list[float]:
    home = directory / "engine"
    pull_engine(home)
    weights = options.weights or write_weights(directory / "small.gguf", **SIZES)
    shelf = Shelf(weights.read_bytes())
    opened.callback(shelf.close)
    nats, registry = Nats(directory / "nats"), OciRegistry(directory / "registry")
    opened.callback(nats.stop)
    opened.callback(registry.stop)
    fleet = Cluster(directory, nats, None, registry=registry)
    opened.callback(fleet.stop)
    fleet.offer_image("vllm-mock", vllm_mock.vllm_files(), version="1.0")
    admin = fleet.start_frontend("a", "--auto-approve", "--suspect-after", "10", "--offline-after", "20")
    give_engine(home, fleet.worker_dir("one"))
    with on_engine_cores():
        fleet.start_worker("one")
    admin.wait_for_status("one", "healthy", within_s=60)

    worker = fleet.worker_dir("one")
    ratios = []
    if options.only != "llama.cpp":
        corral = serve(admin, "mock", "name: mock\nbackend: vllm-mock\nparameters: {model: some/model}\n", worker)
        port = free_port()
        command = [sys.executable, vllm_mock.__file__, "serve", "some/model", f"--port={port}"]
        with by_hand(command, port, "mock") as direct:
            ratios.append(compare("mock of vLLM", corral, direct, options))
    if options.only != "vllm":
        # Found first: the engine of a worker would take a part of its time.
        best = max(SLOTS_BY_HAND, key=lambda slots: _throughput(home, weights, slots, options))
        config = "\n".join(line for line in shelf.config("llama").splitlines() if not line.startswith("context_size"))
        corral = serve(admin, "llama", config, worker)
        command, port = llama_cpp_by_hand(home, weights, best, options.context)
        with by_hand(command, port, "m") as direct:
            ratios.append(compare(f"llama.cpp, by hand with {best} slots", corral, direct, options))
    return ratios


def _throughput(home: Path, weights: Path, slots: int, options: argparse.Namespace) -> float:
    command, port = llama_cpp_by_hand(home, weights, slots, options.context)
    with by_hand(command, port, "m") as direct:
        figures = asyncio.run(measure(direct, chats=options.chats, each=1, max_tokens=options.tokens))
    print(f"llama.cpp by hand, {slots:2} slots: {figures.told()}")
    return figures.tokens_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("vllm", "llama.cpp"), help="this engine")
    parser.add_argument("--weights", type=Path, help="a model for llama.cpp")
    parser.add_argument("--chats", type=int, default=64, help="at the same time")
    parser.add_argument("--few", type=int, default=4, help="at the same time, in the case without a queue")
    parser.add_argument(
        "--each", type=int, default=4, help="chats one after another; with one alone, fewer slots seem faster"
    )
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--context", type=int, default=512, help="of one slot of llama.cpp by hand")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that all programs are stopped too
    os.sched_setaffinity(0, OTHER_CORES)
    directory = Path(tempfile.mkdtemp(prefix="corral-engines-"))
    try:
        with ExitStack() as opened:
            ratios = run(directory, options, opened)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"lowest ratio {min(ratios):.3f}, goal {GOAL}; {len(ENGINE_CORES)} of {len(CORES)} processors for engines")
    if min(ratios) < GOAL:
        sys.exit(f"below the goal of {GOAL}")


if __name__ == "__main__":
    main()
