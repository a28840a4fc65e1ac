"""Corral compared with others in one run: direct, nginx, FastAPI+httpx, LiteLLM.

    ./dev bench serving                    everything, five rounds
    python benchmarks/serving.py --rounds 1 --seconds 1 --only nginx,corral
    python benchmarks/serving.py --only nginx,corral,product --compare ../other-checkout

Each server gets one core. The load generator (wrk; our own for streams) and the mock replica share the other core.
Rounds alternate between the servers. The result is the median of the rounds and the ratios that the goals are about.
`corral` is the gateway alone with a fixed route table, with keys, routing, limits, queue and metrics switched on.
`limited` is the same process asked with a key that has every kind of limit: two processes of the same program differ
by several percent. `product` is a whole `corral up` with its defaults, measured from outside: bus, frontend and worker
share the server's core, and the worker starts the mock replica. Its key has every kind of limit too, in this checkout.

`--compare` adds the gateway of another checkout as `before` and its `corral up` as `product before`, and prints the
change of every figure. Use it to judge a change: figures of different runs on a shared machine do not compare.

On Debian the benchmark installs wrk and nginx when it runs as root. LiteLLM gets its own environment below .dev/. A
server that cannot be installed or does not answer is left out, with a message.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

ROOT = Path(__file__).resolve().parent.parent
PARTS = ROOT / "benchmarks" / "serving_parts"
# Long and random: LiteLLM does not start with a weak key.
KEY, LIMITED_KEY = (f"sk-{secrets.token_hex(32)}" for _ in range(2))
SERVER_CORE, LOAD_CORE = "0", "1"
CONNECTIONS = (1, 32, 256)
STREAMS = (100, 500)
WARM = ("32 connections", "256 connections", "32 kB prompts, 32 connections")
PROMPT_BYTES = 32 * 1024
PATH = "/v1/chat/completions"
REPLICA = "upstream.py"
# Every limit is checked, and none is reached.
HIGH_LIMITS = (
    "--rpm", "100000000", "--tpm", "100000000000", "--concurrent", "100000", "--daily-tokens", "10000000000000",
    "--monthly-tokens", "100000000000000",
)  # fmt: skip


@dataclass
class Contestant:
    name: str
    port: int
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    key: str = KEY
    few: bool = False
    """It is so slow that one round of fewer cases is enough."""
    measured: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """Of all its processes but the replica."""
        if self.process is None:
            return 0.0
        parent = psutil.Process(self.process.pid)
        own = [each for each in (parent, *parent.children(recursive=True)) if REPLICA not in " ".join(each.cmdline())]
        return sum(sum(each.cpu_times()[:2]) for each in own)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def install(package: str, program: str) -> bool:
    if shutil.which(program):
        return True
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        command = ["apt-get", "install", "-y", "--no-install-recommends", package]
        subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return shutil.which(program) is not None


def find_litellm() -> Path | None:
    """The LiteLLM program, in its own environment."""
    home = ROOT / ".dev" / "litellm"
    program = home / "bin" / "litellm"
    if not program.exists():
        note("installing LiteLLM into .dev/litellm (once) ...")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "litellm[proxy]"]
        made = subprocess.call([sys.executable, "-m", "venv", str(home)]) == 0
        if not made or subprocess.call(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
            shutil.rmtree(home, ignore_errors=True)
    return program if program.exists() else None


LITELLM_SETTINGS = {
    # No network lookups, and no log line for each request.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MASTER_KEY": KEY,
}


def start(command: Sequence[str], log: Path, *, core: str = SERVER_CORE, tree: Path = ROOT) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), **LITELLM_SETTINGS}
    with log.open("wb") as output:
        return subprocess.Popen(
            ["taskset", "-c", core, *command], stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def answers(
    port: int, process: subprocess.Popen[bytes] | None = None, *, key: str = KEY, within_s: float = 120.0
) -> str:
    """Empty when the server answers within the time; otherwise the latest error. A process that ended fails at once."""
    deadline_s = time.monotonic() + within_s
    body = json.dumps({"model": "bench", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}", data=body, headers=headers)
            urllib.request.urlopen(request, timeout=10).read()
        except (OSError, urllib.error.URLError) as error:
            if process is not None and process.poll() is not None:
                return f"its process ended with {process.returncode}"
            if time.monotonic() > deadline_s:
                said = error.read(500).decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
                return f"{error} {said}".strip()
            time.sleep(0.2)
        else:
            return ""


def wait_for(port: int, what: str) -> None:
    problem = answers(port)
    if problem:
        raise SystemExit(f"{what} does not answer on port {port}: {problem}")


def last_lines(log: Path | None, most: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-most:]) if log is not None else ""


NGINX = """daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_buffer_size 128k; client_max_body_size 64m;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s;
  upstream replica {{ server {address}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replica; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


def start_product(name: str, directory: Path, port: int, tree: Path) -> Contestant:
    """`corral up` of a checkout. Its worker starts the mock replica, which moves to the core of the load."""
    home, engine = directory / name, directory / f"{name} engine"
    engine.mkdir()
    shutil.copy(PARTS / REPLICA, engine / REPLICA)
    shutil.copytree(Path(uvloop.__file__).parent, engine / "uvloop")
    command = [sys.executable, "-S", f"{{dir}}/{REPLICA}", "{port}", "--core", LOAD_CORE]
    manifest = {"protocol": "openai", "start": command, "readiness": {"path": "/health"}, "token_env": "BENCH_TOKEN"}
    (engine / "corral.json").write_text(json.dumps(manifest))
    corral = [sys.executable, "-P", "-m", "corral"]
    log = directory / f"{name}.log"
    process = start(
        [*corral, "up", "--data-dir", str(home), "--listen", f"127.0.0.1:{port}", "--bus-port", str(port + 10),
         "--name", "bench"],
        log, tree=tree,
    )  # fmt: skip
    found = Contestant(name, port, process, log=log)
    deadline_s = time.monotonic() + 60
    while "Ctrl-C stops everything." not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline_s:
            return found
        time.sleep(0.1)

    def tell(*words: str, text: str = "") -> str:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        where = ("--data-dir", str(home), "--url", f"http://127.0.0.1:{port}")
        done = subprocess.run([*corral, *words, *where], input=text, env=environment, capture_output=True, text=True)
        if done.returncode:
            note(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    tell("backends", "install", "--uri", str(engine), "--name", "bench-engine")
    weights = home / "models" / "weights.bin"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"the replica does not read them")
    tell(
        "models",
        "install",
        "--file",
        "-",
        text=f"name: bench\nbackend: bench-engine\nparameters: {{model: {weights.name}}}\n",
    )
    # The other checkout may not know limits.
    limits = HIGH_LIMITS if tree == ROOT else ()
    created = tell("keys", "create", "--name", "bench", *limits, "--json")
    found.key = json.loads(created)["key"] if created else ""
    return found


@contextmanager
def contestants(directory: Path, wanted: set[str], base: int, compare: Path | None) -> Iterator[list[Contestant]]:
    address = f"127.0.0.1:{base}"
    python = sys.executable
    found = [Contestant("direct", base)]
    replica = start([python, str(PARTS / "upstream.py"), str(base)], directory / "replica.log", core=LOAD_CORE)
    try:
        if "nginx" in wanted and install("nginx-light", "nginx"):
            config = directory / "nginx.conf"
            config.write_text(NGINX.format(dir=directory, address=address, port=base + 1))
            process = start(["nginx", "-c", str(config)], directory / "nginx.log")
            found.append(Contestant("nginx", base + 1, process))
        if wanted & {"corral", "limited"}:
            command = [python, str(PARTS / "corral_gateway.py"), str(base + 2), address, KEY]
            process = start([*command, "--limited-key", LIMITED_KEY], directory / "corral.log")
            found.append(Contestant("corral", base + 2, process))
            found.append(Contestant("limited", base + 2, process, key=LIMITED_KEY))
        if "product" in wanted:
            found.append(start_product("product", directory, base + 7, ROOT))
        if "product" in wanted and compare is not None:
            found.append(start_product("product before", directory, base + 8, compare))
        if compare is not None:
            script = next((compare / "benchmarks" / "serving_parts").glob("corral_*.py"))
            process = start([python, str(script), str(base + 5), address, KEY], directory / "before.log", tree=compare)
            found.append(Contestant("before", base + 5, process))
        if "fastapi" in wanted:
            command = [python, str(PARTS / "fastapi_proxy.py"), str(base + 3), address]
            found.append(Contestant("fastapi", base + 3, start(command, directory / "fastapi.log"), few=True))
        litellm = find_litellm() if "litellm" in wanted else None
        if litellm is not None:
            config = directory / "litellm.yaml"
            config.write_text(
                "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n"
                f"      api_base: http://{address}/v1\n      api_key: none\n"
            )
            command = [str(litellm), "--config", str(config), "--host", "127.0.0.1", "--port", str(base + 4),
                       "--num_workers", "1", "--telemetry", "False"]  # fmt: skip
            log = directory / "litellm.log"
            found.append(Contestant("litellm", base + 4, start(command, log), log=log, few=True))
        elif "litellm" in wanted:
            note("LiteLLM could not be installed; it is left out")
        ready = []
        for contestant in found:
            within_s = 300.0 if contestant.few else 60.0
            problem = answers(contestant.port, contestant.process, key=contestant.key, within_s=within_s)
            if problem:
                note(f"{contestant.name} does not answer ({problem}); it is left out")
                note(last_lines(contestant.log))
            elif contestant.name in wanted:
                ready.append(contestant)
        yield ready
    finally:
        for process in (replica, *(each.process for each in found)):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def lua(directory: Path, name: str, content: str) -> Path:
    body = json.dumps({"model": "bench", "messages": [{"role": "user", "content": content}], "max_tokens": 64})
    path = directory / f"{name}.lua"
    path.write_text(
        'wrk.method = "POST"\n'
        f'wrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[{body}]==]\n'
        "done = function(summary, latency)\n"
        '  io.write(string.format("RESULT %d %d %d %d %f\\n", summary.requests, summary.duration,\n'
        "    summary.errors.status, summary.errors.status + summary.errors.read + summary.errors.timeout,\n"
        "    latency:percentile(50)))\nend\n"
    )
    return path


def measure_requests(contestant: Contestant, connections: int, script: Path, seconds: float) -> dict[str, float]:
    before_s = contestant.cpu_s()
    done = subprocess.run(
        ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout",
         "30s", "-H", f"Authorization: Bearer {contestant.key}", "-s", str(script), f"http://127.0.0.1:{contestant.port}{PATH}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    cpu_s = contestant.cpu_s() - before_s
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    requests, duration_us, refused, errors, p50_us = (float(word) for word in line.split()[1:])
    # Rejected and aborted requests do not count as answered.
    return {
        "per_s": max(0.0, requests - refused) / (duration_us / 1e6),
        "cpu_us": cpu_s * 1e6 / max(1.0, requests),
        "p50_us": p50_us,
        "errors": errors,
    }


def measure_streams(contestant: Contestant, streams: int, seconds: float) -> dict[str, float]:
    process = subprocess.Popen(
        ["taskset", "-c", LOAD_CORE, sys.executable, str(PARTS / "streams.py"), str(contestant.port),
         "--streams", str(streams), "--seconds", str(seconds), "--key", contestant.key],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    before_s = contestant.cpu_s()
    result = json.loads(process.stdout.readline())
    cpu_s = contestant.cpu_s() - before_s
    process.wait()
    chunks = max(1, result["chunks"])
    return {
        "per_s": result["chunks_per_s"],
        "cpu_us": cpu_s * 1e6 / chunks,
        "p50_us": (result["first_p50_ms"] or float("inf")) * 1000,
        "errors": result["failed"] + result["errors"],
    }


def run(options: argparse.Namespace) -> "Results":
    cases = {f"{count} connections": ("requests", count, "short") for count in CONNECTIONS}
    cases["32 kB prompts, 32 connections"] = ("requests", 32, "long")
    cases |= {f"{count} streams": ("streams", count, "") for count in STREAMS}
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        scripts = {
            "short": lua(directory, "short", "Tell me about horses."),
            "long": lua(directory, "long", "horses " * (PROMPT_BYTES // 7)),
        }
        wanted = {*options.only.split(","), *(["before", "product before"] if options.compare else [])}
        with contestants(directory, wanted, options.port, options.compare) as entered:
            for number in range(options.rounds):
                for case, (kind, count, script) in cases.items():
                    if options.case and options.case not in case:
                        continue
                    # Every second round in reverse, so that no server always runs after the same one.
                    for contestant in entered if number % 2 == 0 else reversed(entered):
                        if contestant.few and (number > 0 or (kind == "streams" and count > 100)):
                            continue
                        note(f"round {number + 1}: {case}: {contestant.name}")
                        measured = (
                            measure_requests(contestant, count, scripts[script], options.seconds)
                            if kind == "requests"
                            else measure_streams(contestant, count, options.seconds)
                        )
                        contestant.measured.setdefault(case, []).append(measured)
            return {
                case: {each.name: Measured(each.measured[case]) for each in entered if case in each.measured}
                for case in cases
            }


class Measured:
    """One server in one case."""

    def __init__(self, rounds: list[dict[str, float]]) -> None:
        self.rounds = rounds
        self.median = {unit: statistics.median(one[unit] for one in rounds) for unit in rounds[0]}
        self.best = {unit: min(one[unit] for one in rounds) for unit in rounds[0]}
        self.best["per_s"] = max(one["per_s"] for one in rounds)


Results = dict[str, dict[str, Measured]]
"""By case and server."""


@dataclass(frozen=True)
class Goal:
    case: str
    what: str
    unit: str
    other: str
    least: float | None = None
    most: float | None = None
    who: str = "corral"

    def judge(self, results: Results) -> str | None:
        case = results.get(self.case, {})
        if self.who not in case or self.other not in case:
            return None
        if not case[self.other].median["per_s"]:
            return f"       {self.case}: {self.what}: {self.other} answered none"
        # Round by round where possible: the machine's speed changes between rounds.
        rounds = zip(case[self.who].rounds, case[self.other].rounds, strict=False)
        ratio = statistics.median(one[self.unit] / max(1e-9, another[self.unit]) for one, another in rounds)
        met = (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)
        wanted = f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"
        return f"{'met   ' if met else 'MISSED'} {self.case}: {self.what} {ratio:.2f} x {self.other} (goal {wanted})"


def goals() -> list[Goal]:
    found = []
    for count in (32, 256):
        case = f"{count} connections"
        found += [
            Goal(case, "requests/s", "per_s", "nginx", least=0.5),
            Goal(case, "CPU per request", "cpu_us", "nginx", most=2.0),
            Goal(case, "requests/s", "per_s", "litellm", least=100),
            Goal(case, "requests/s", "per_s", "fastapi", least=20),
        ]
    found += [
        Goal("1 connections", "median latency", "p50_us", "nginx", most=1.5),
        Goal("32 kB prompts, 32 connections", "requests/s", "per_s", "nginx", least=0.5),
        *(Goal(case, "CPU with all limits of a key", "cpu_us", "corral", most=1.05, who="limited") for case in WARM),
    ]
    for count in STREAMS:
        found += [
            Goal(f"{count} streams", "CPU per chunk", "cpu_us", "nginx", most=1.5),
            Goal(f"{count} streams", "median time to first chunk", "p50_us", "nginx", most=2.0),
        ]
    found += [
        Goal("32 connections", "requests/s of the product", "per_s", "nginx", least=0.65, who="product"),
        Goal("256 connections", "requests/s of the product", "per_s", "nginx", least=0.6, who="product"),
        Goal("32 kB prompts, 32 connections", "requests/s of the product", "per_s", "nginx", least=0.8, who="product"),
        Goal("1 connections", "median latency of the product", "p50_us", "nginx", most=1.15, who="product"),
        Goal("100 streams", "first chunk of the product", "p50_us", "nginx", most=1.3, who="product"),
        Goal("100 streams", "CPU per chunk of the product", "cpu_us", "nginx", most=1.25, who="product"),
        Goal("500 streams", "first chunk of the product", "p50_us", "nginx", most=0.7, who="product"),
    ]
    return found


def changes(results: Results) -> Iterator[str]:
    """What changed from the other checkout, in percent. Other load on the machine disturbs the best round least."""
    for case, by_name in results.items():
        for name, other in (("corral", "before"), ("product", "product before")):
            if name not in by_name or other not in by_name:
                continue
            before, now = by_name[other], by_name[name]
            for kind, ours, theirs in (("median", now.median, before.median), ("best round", now.best, before.best)):
                parts = [
                    f"{label} {(ours[unit] / max(1e-9, theirs[unit]) - 1) * 100:+.1f} %"
                    for label, unit in (("throughput", "per_s"), ("CPU each", "cpu_us"), ("p50", "p50_us"))
                ]
                yield f"change of {name}, {case}, {kind}: {', '.join(parts)}"
            nginx = by_name["nginx"].median["per_s"] if "nginx" in by_name else 0.0
            if nginx:
                told = [f"{one.median['per_s'] / nginx:.3f}" for one in (before, now)]
                yield f"{name}, {case}: {told[0]} x nginx before, {told[1]} now"


def show(results: Results) -> None:
    for case, by_name in results.items():
        if not by_name:
            continue
        streams = "streams" in case
        print(f"\n{case}")
        unit = "chunks/s" if streams else "requests/s"
        print(f"  {'':14} {unit:>12} {'us CPU each':>12} {'first chunk ms' if streams else 'p50 ms':>15} {'errors':>8}")
        for name, one in ((name, found.median) for name, found in by_name.items()):
            if not one["per_s"]:
                print(f"  {name:14} {'none answered':>12} {one['errors']:36.0f}")
                continue
            cpu = f"{one['cpu_us']:.1f}" if one["cpu_us"] else "-"
            print(f"  {name:14} {one['per_s']:12,.0f} {cpu:>12} {one['p50_us'] / 1000:15.2f} {one['errors']:8.0f}")
    print()
    for line in changes(results):
        print(line)
    for goal in goals():
        verdict = goal.judge(results)
        if verdict:
            print(verdict)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="direct,nginx,corral,limited,product,fastapi,litellm")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--compare", type=Path, default=None, help="another checkout, measured as `before`")
    parser.add_argument("--port", type=int, default=18280)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    if not install("wrk", "wrk"):
        raise SystemExit("this benchmark needs wrk: apt-get install wrk")
    results = run(options)
    show(results)
    if options.json:
        told = {case: {name: one.rounds for name, one in by_name.items()} for case, by_name in results.items()}
        options.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
