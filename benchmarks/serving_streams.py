"""1,000 streams at 20 tokens a second each through two gateway processes, for a minute: does Corral stall any of them?

    ./dev bench serving_streams            python benchmarks/serving_streams.py --seconds 10

The same streams are read directly from the mock replica first: pauses there are not caused by Corral. The result is the
longest pause between two tokens of any stream, and the memory of the processes at the start and at the end.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from serving import KEY, PARTS, note, start, wait_for

INTERVAL_MS = 50.0
CHUNKS = 200


def read(port: int, streams: int, seconds: float) -> dict[str, float]:
    length_s = CHUNKS * INTERVAL_MS / 1000
    command = [sys.executable, str(PARTS / "streams.py"), str(port), "--streams", str(streams), "--seconds",
               str(seconds), "--length-s", str(length_s), "--key", KEY]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--port", type=int, default=18380)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        directory, port = Path(text), options.port
        upstream = [sys.executable, str(PARTS / "upstream.py"), str(port), "--chunk-ms", str(INTERVAL_MS), "--chunks",
                    str(CHUNKS)]  # fmt: skip
        gateway = [
            sys.executable,
            str(PARTS / "corral_gateway.py"),
            str(port + 1),
            f"127.0.0.1:{port}",
            KEY,
            "--shared",
        ]
        processes = [start(upstream, directory / "replica.log", core="0,1")]
        try:
            wait_for(port, "the replica")
            processes += [start(gateway, directory / f"gateway-{number}.log", core=str(number)) for number in (0, 1)]
            wait_for(port + 1, "Corral")
            note("directly ...")
            direct = read(port, options.streams, min(10.0, options.seconds))
            note("through two processes ...")
            read(port + 1, options.streams, 1.0)
            before = [psutil.Process(process.pid).memory_info().rss for process in processes[1:]]
            began_s = time.monotonic()
            through = read(port + 1, options.streams, options.seconds)
            after = [psutil.Process(process.pid).memory_info().rss for process in processes[1:]]
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
                process.wait(15)
    print(f"{options.streams} streams, {1000 / INTERVAL_MS:g} tokens/s each, {time.monotonic() - began_s:.0f} s")
    for name, result in (("direct", direct), ("Corral", through)):
        print(
            f"  {name:8} {result['chunks_per_s']:8,.0f} tokens/s, longest pause {result['longest_pause_ms']:.0f} ms,"
            f" first token p50 {result['first_p50_ms']:.1f} ms, failed {result['failed']:.0f}"
        )
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        print(f"  process {number}: {was / 2**20:.1f} MiB before, {now / 2**20:.1f} MiB after")
    ours_ms = through["longest_pause_ms"] - direct["longest_pause_ms"]
    grown = max(now / was for was, now in zip(before, after, strict=True))
    print(f"{'met   ' if ours_ms < 1000 else 'MISSED'} Corral stalls no stream for over 1 s ({ours_ms:.0f} ms more)")
    print(f"{'met   ' if grown < 1.1 else 'MISSED'} memory is flat ({(grown - 1) * 100:+.1f} %)")


if __name__ == "__main__":
    main()
