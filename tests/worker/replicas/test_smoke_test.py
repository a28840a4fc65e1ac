"""How a version is started once where no model uses it, by its protocol and its `trial`."""

from pathlib import Path

import pytest

from corral.artifacts import InstalledVersion, Manifest, Metadata, Trial
from corral.core.processes.process import Fill
from corral.worker.replicas.launch import StartSettings
from corral.worker.replicas.smoke_test import GRPC_WITHIN_S, PlannedTest, Untestable, plan_smoke_test

SETTINGS = StartSettings(host="127.0.0.1")
START = ("{bin}/serve", "--port={port}", "{model}")


def plan(manifest: Manifest | None) -> PlannedTest | Untestable:
    metadata = Metadata(name="b", digest="sha256:" + "1" * 64, manifest=manifest)
    version = InstalledVersion(name="b", path=Path("/srv/b"), metadata=metadata, current=True)
    return plan_smoke_test(version, SETTINGS, name="smoke-test-op")


def engine(trial: Trial | None) -> Manifest:
    return Manifest(protocol="openai", start=START, token_env="TOKEN", environment={"MODE": "fast"}, trial=trial)


PORT = Fill("--port={port}")


@pytest.mark.parametrize(
    ("manifest", "command", "kind", "within_s"),
    [
        pytest.param(
            None, ("/srv/b/run.sh", "--addr", Fill("127.0.0.1:{port}")), "grpc", GRPC_WITHIN_S, id="grpc-needs-no-trial"
        ),
        pytest.param(
            Manifest(protocol="localai-grpc", start=("x",), trial=Trial(within_s=7)), ("x",), "grpc", 7,
            id="a-trial-limits-a-grpc-backend",
        ),
        pytest.param(
            engine(Trial(command=("{bin}/serve", "--version"), within_s=9)), ("/srv/b/bin/serve", "--version"), "exits",
            9, id="a-command-must-end",
        ),
        pytest.param(
            engine(Trial(model="{dir}/tiny.gguf")), ("/srv/b/bin/serve", PORT, "/srv/b/tiny.gguf"), "http", 120,
            id="an-engine-is-started-with-its-own-model",
        ),
    ],
)  # fmt: skip
def test_plan_smoke_test(
    manifest: Manifest | None, command: tuple[str | Fill, ...], kind: str, within_s: float
) -> None:
    planned = plan(manifest)
    assert isinstance(planned, PlannedTest)
    spec = planned.spec
    assert (spec.command, spec.readiness.kind, spec.readiness.within_s) == (command, kind, within_s)
    assert spec.key == "smoke-test-op#0"
    assert "smoke_test" in spec.labels


def test_an_engine_without_a_trial_cannot_be_tested() -> None:
    assert plan(engine(None)) == Untestable("it speaks OpenAI's API, and its corral.yaml has no `trial`")
