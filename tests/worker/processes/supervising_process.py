"""A worker in a process of its own, to be killed: `state first_port kind count [behaviour ...]`.

Starts `count` servers, prints one JSON line with what runs, and serves until it is killed.
"""

import asyncio
import json
import sys
from pathlib import Path

from corral.core.processes.process import ProcessKey
from harness.supervisor_bench import GROUPS, Bench, server


async def main() -> None:
    state, first_port, kind, count, *behaviour = sys.argv[1:]
    bench = Bench(state=Path(state), groups=GROUPS[kind](), first_port=int(first_port))
    async with bench.supervisor(stop=False) as supervisor:
        specs = [server(f"model#{number}", *behaviour) for number in range(int(count))]
        print("launching", flush=True)
        running = await asyncio.gather(*(supervisor.start(spec) for spec in specs))
        print(json.dumps([[one.pid, one.port, one.token] for one in running]), flush=True)
        if "stop" in behaviour:
            await supervisor.stop(ProcessKey("model#0"), reason="told to", grace_s=60)
        await asyncio.Event().wait()


asyncio.run(main())
