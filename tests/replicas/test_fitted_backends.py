"""LocalAI's build of llama.cpp is loaded with what the worker planned for its machine, and its replica says so."""

import json
from pathlib import Path

from harness.cluster import Cluster, ask
from harness.localai_backend import write_localai_backend
from harness.nats import Nats
from harness.tiny_model import write_weights
from harness.waiting import wait_until

CONFIG = """
name: horse
backend: cuda12-llama-cpp
parameters: {model: horse.gguf}
template: {use_tokenizer_template: true}
"""


def test_the_worker_plans_and_the_frontend_loads(tmp_path: Path, nats: Nats) -> None:
    cluster = Cluster(tmp_path, nats, None)
    try:
        admin = cluster.start_frontend()
        write_localai_backend(tmp_path / "system" / "cuda12-llama-cpp")
        cluster.start_worker("w1", "--system-backends-dir", str(tmp_path / "system"))
        (tmp_path / "a" / "models").mkdir(parents=True, exist_ok=True)
        write_weights(tmp_path / "a" / "models" / "horse.gguf")
        assert admin.call("POST", "/api/models", body={"config": CONFIG}).status == 201
        answer = ask(admin, "horse", messages=[{"role": "user", "content": "options?"}])
        loaded = json.loads(answer.json()["choices"][0]["message"]["content"])["loaded"]
        [replica] = wait_until(
            lambda: [row for row in cluster.ready("horse") if row["slots"]], what="its slots are reported", within_s=60
        )
        slots, context = replica["slots"], replica["context"]
        assert slots > 1
        assert loaded["ContextSize"] == slots * context
        assert loaded["Options"][:2] == [f"parallel:{slots}", "kv_unified:false"]
        assert loaded["Threads"] >= 1
        assert replica["capacity"] == slots + max(1, slots // 8)
    finally:
        cluster.stop()
