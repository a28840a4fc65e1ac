"""How a backend is started: values are data, never code (S-44)."""

from pathlib import Path

import pytest

from corral.artifacts.content.manifest import LOCALAI_RUN, Manifest, StartRequest, Trial, check_manifest, plan_start
from corral.artifacts.errors import BadManifest

MANIFEST = Manifest(
    protocol="openai",
    start=("{python}", "{dir}/x.py", "--host={host}", "--port={port}", "--model={model}"),
    context=("--ctx={context}",),
    slots=("--slots={slots}",),
    embeddings=("--embed",),
    served_name=("--name={name}",),
    options={"temp": ("--temp={value}",)},
    token_env="TOKEN",
)
REQUEST = StartRequest(host="127.0.0.1", port=7, model="/m/w.gguf")


def test_only_what_is_set_becomes_an_argument() -> None:
    assert plan_start(MANIFEST, Path("/v"), REQUEST).argv == (
        "/v/bin/python", "/v/x.py", "--host=127.0.0.1", "--port=7", "--model=/m/w.gguf",
    )  # fmt: skip


def test_everything_set_is_passed_on() -> None:
    full = StartRequest(
        host="h", port=1, model="m", model_name="n", context=512, slots=2, embeddings=True, options=(("temp", "0.5"),)
    )
    assert plan_start(MANIFEST, Path("/v"), full).argv[5:] == (
        "--ctx=512",
        "--slots=2",
        "--name=n",
        "--embed",
        "--temp=0.5",
    )


@pytest.mark.parametrize("value", ["; rm -rf /", "$(id)", "--other-flag", "{dir}", "a b", "'"])
def test_a_value_stays_one_argument_and_is_not_filled_in_again(value: str) -> None:
    request = StartRequest(host="h", port=1, model="m", options=(("temp", value),))
    assert plan_start(MANIFEST, Path("/v"), request).argv[-1] == f"--temp={value}"


def test_an_option_the_manifest_does_not_list_is_refused() -> None:
    with pytest.raises(BadManifest, match="has no option 'LD_PRELOAD'"):
        plan_start(MANIFEST, Path("/v"), StartRequest(host="h", port=1, model="m", options=(("LD_PRELOAD", "x"),)))


def test_localais_run_sh_gets_an_address() -> None:
    assert plan_start(LOCALAI_RUN, Path("/b"), REQUEST).argv == ("/b/run.sh", "--addr", "127.0.0.1:7")


@pytest.mark.parametrize(
    "bad",
    [
        Manifest(protocol="openai", start=()),
        Manifest(protocol="openai", start=("{unknown}",)),
        Manifest(protocol="openai", start=("x",), environment={"LD_PRELOAD": "x"}),
        Manifest(protocol="openai", start=("x",), environment={"PATH": "x"}),
        Manifest(protocol="openai", start=("x",), environment={"PYTHONPATH": "x"}),
        Manifest(protocol="openai", start=("x",), token_env="lower case"),
        Manifest(protocol="openai", start=("x",), launcher="../../evil"),
        Manifest(protocol="openai", start=("x",), trial=Trial()),
        Manifest(protocol="openai", start=("x",), trial=Trial(command=("x",), model="{dir}/m")),
        Manifest(protocol="openai", start=("x",), trial=Trial(command=("{model}",))),
        Manifest(protocol="openai", start=("x",), trial=Trial(model="/etc/passwd")),
        Manifest(protocol="openai", start=("x",), trial=Trial(model="{dir}/../other/m")),
        Manifest(protocol="openai", start=("x",), trial=Trial(command=("x",), within_s=601)),
        Manifest(protocol="localai-grpc", start=("x",), trial=Trial(command=("x",))),
    ],
)
def test_a_manifest_that_cannot_be_followed_is_refused(bad: Manifest) -> None:
    with pytest.raises(BadManifest):
        check_manifest(bad)
