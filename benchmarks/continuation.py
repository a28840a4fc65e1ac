"""60 streams at a time over three replicas of a real model, while replicas and then a whole worker are killed.

    ./dev bench continuation
    python benchmarks/continuation.py [--model smollm2] [--clients 60] [--rounds 6] [--tokens 32]

Clients are OpenAI's. Each sends `rounds` chats, one after another: greedy, with a fixed seed. This is run three times.
The first two runs are undisturbed. They show what each prompt is answered with, and how often the engine itself answers
one prompt differently: its batches change with the other requests. In the third run, five kills are spread over the
streams: four engines, then a worker with all that it runs. Corral restarts engines; the worker stays away.

It fails if a stream does not end complete.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import openai

from harness.cluster import ADMIN_KEY, Cluster
from harness.engine import pull_engine
from harness.nats import Nats
from harness.programs import Admin, call
from harness.waiting import wait_until_async

NODES = ("w1", "w2", "w3")
KILLS = ("w1", "w2", "w3", "w1")
LAST_KILL = "w2"
"""A whole worker."""
LOADED_WITHIN_S = 300.0
SUBJECTS = ("horses", "rain", "bread", "mountains", "the sea", "music", "trains", "gardens", "winter", "maps")
FORMS = ("Tell me about {}.", "Why do people like {}?", "Write a short story about {}.", "Describe {} to a child.",
         "What is surprising about {}?", "Give me three facts about {}.")  # fmt: skip


@dataclass
class Run:
    """What all streams of one run said."""

    texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By prompt."""
    failed: list[str] = field(default_factory=list)
    done: int = 0
    took_s: float = 0.0


async def stream(client: openai.AsyncOpenAI, model: str, prompt: str, tokens: int, run: Run) -> None:
    said, reason = "", None
    try:
        async for chunk in await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": prompt}],
            stream=True,
            max_tokens=tokens,
            temperature=0,
            seed=1,
        ):
            for choice in chunk.choices:
                said += choice.delta.content or ""
                reason = choice.finish_reason or reason
    except (openai.APIError, ValueError) as error:
        run.failed.append(f"{prompt}: {error!r}")
    else:
        if reason is None:
            run.failed.append(f"{prompt}: it ended without a finish_reason")
    run.texts[prompt].append(said)
    run.done += 1


async def run_all(admin: Admin, given: argparse.Namespace, disturb: "Killer | None" = None) -> Run:
    run, began_s = Run(), time.monotonic()
    prompts = [form.format(subject) for form in FORMS for subject in SUBJECTS][: given.clients]
    async with openai.AsyncOpenAI(base_url=f"{admin.url}/v1", api_key=ADMIN_KEY, max_retries=0, timeout=300) as client:

        async def repeat(prompt: str) -> None:
            for _ in range(given.rounds):
                await stream(client, given.model, prompt, given.tokens, run)

        async with asyncio.TaskGroup() as tasks:
            for prompt in prompts:
                tasks.create_task(repeat(prompt))
            if disturb is not None:
                tasks.create_task(disturb.run(run))
    run.took_s = time.monotonic() - began_s
    return run


class Killer:
    def __init__(self, cluster: Cluster, streams: int) -> None:
        self._cluster, self._streams = cluster, streams

    async def run(self, run: Run) -> None:
        for turn, node in enumerate((*KILLS, LAST_KILL), 1):
            await self._until_done(run, turn * self._streams // (len(KILLS) + 2))
            pids = self._cluster.engines(node)
            if node == LAST_KILL and turn > len(KILLS):
                self._cluster.workers[node].kill()
                pids = self._cluster.processes(node)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            print(f"  after {run.done:4} streams: killed {node} ({len(pids)} processes)", flush=True)

    async def _until_done(self, run: Run, count: int) -> None:
        async def look() -> bool:
            return run.done >= count

        await wait_until_async(look, what=f"{count} streams have ended", within_s=1800)


def serve(cluster: Cluster, model: str) -> Admin:
    admin = cluster.start_frontend("a", "--queue-wait", "300s")
    for name in NODES:
        cluster.start_worker(name)
    assert admin.call("POST", "/api/models/install", body={"name": model}).status == 201
    wanted = {"model_name": model, "min_replicas": len(NODES), "max_replicas": len(NODES)}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    cluster.wait_for_ready(model, len(NODES), within_s=LOADED_WITHIN_S)
    return admin


def told(name: str, run: Run, known: dict[str, set[str]]) -> str:
    texts = [(prompt, text) for prompt, said in run.texts.items() for text in said]
    differ = sum(text not in known[prompt] for prompt, text in texts)
    return (
        f"{name:12} {len(texts):4} streams in {run.took_s:5.1f} s   incomplete {len(run.failed):3}"
        f"   other text than in the first run {differ:3} ({differ / max(1, len(texts)):.1%})"
    )


def continued(admin: Admin) -> int:
    answer = call("GET", f"{admin.url}/metrics", key=ADMIN_KEY).body.decode()
    lines = [line for line in answer.splitlines() if line.startswith("corral_continued_answers_total")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="smollm2", help="a model of the gallery")
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "engine").mkdir()
        pull_engine(home / "engine")
        (home / "cluster").mkdir()
        nats = Nats(home / "nats")
        cluster = Cluster(home / "cluster", nats, None, engine=home / "engine")
        try:
            measure(cluster, given)
        finally:
            cluster.stop()
            nats.stop()


def measure(cluster: Cluster, given: argparse.Namespace) -> None:
    admin = serve(cluster, given.model)
    first = asyncio.run(run_all(admin, given))
    known = {prompt: set(said) for prompt, said in first.texts.items()}
    several = sum(len(texts) > 1 for texts in known.values())
    print(f"{given.clients} clients, {given.rounds} chats each, {given.tokens} tokens, {len(NODES)} replicas")
    print(told("undisturbed", first, known), flush=True)
    print(f"             prompts with several answers within this run: {several} of {len(known)}", flush=True)
    second = asyncio.run(run_all(admin, given))
    print(told("undisturbed", second, known), flush=True)
    killed = asyncio.run(run_all(admin, given, Killer(cluster, given.clients * given.rounds)))
    print(told("killed", killed, known))
    print(f"             continued at another replica: {continued(admin)} times")
    for failure in killed.failed[:10]:
        print(f"  {failure}")
    if killed.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
