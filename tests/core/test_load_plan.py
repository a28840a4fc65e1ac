"""From a configuration to files and flags; and scheduling given at start."""

import pytest

from corral.core.errors import InvalidInput
from corral.core.load_plan import backend_of, by_configured_name, plan_engine, plan_weights
from corral.core.model_config import parse_model_config
from corral.core.scheduling_seed import parse_seed


def test_listed_downloads_and_addresses_are_fetched_by_the_worker() -> None:
    config = parse_model_config(
        {
            "name": "m",
            "backend": "b",
            "parameters": {"model": "hf://org/repo/weights.gguf@main"},
            "mmproj": "m/eyes.gguf",
            "download_files": [{"filename": "m/eyes.gguf", "uri": "https://host/eyes.gguf"}],
        }
    )
    plan = plan_weights(config)
    assert {file.filename: file.uri for file in plan.files} == {
        "m/eyes.gguf": "https://host/eyes.gguf",
        "m/weights.gguf": "hf://org/repo/weights.gguf@main",
    }
    assert set(plan.paths) == {"m/eyes.gguf", "m/weights.gguf"}
    engine = plan_engine(config, by_configured_name(config, {"m/weights.gguf": "/w", "m/eyes.gguf": "/e"}))
    assert (engine.model, engine.options) == ("/w", {"mmproj": "/e"})


def test_what_options_and_lesser_fields_name_may_be_files_too() -> None:
    config = parse_model_config(
        {
            "name": "m",
            "backend": "b",
            "parameters": {"model": "voices/en.onnx", "tokenizer": "tok.json"},
            "options": ["espeak:data", "threads:8", "up:../../etc", "here:.", "abs:/etc/passwd", "bare"],
            "overrides": ["general.name=str:x"],
            "diffusers": {"clip_model": "clip"},
            "tts": {"audio_path": "me.wav"},
        }
    )
    plan = plan_weights(config)
    assert plan.paths == ("voices/en.onnx",)
    names = ("data", "8", "x", "tok.json", "clip", "me.wav")
    assert plan.maybe == ("voices/en.onnx.json", *(at for name in names for at in (name, f"voices/{name}")))


def test_companions_reach_the_engine_by_their_paths() -> None:
    config = parse_model_config(
        {"name": "m", "backend": "b", "draft_model": "d", "lora_adapter": "a", "lora_adapters": ["b", "c"]}
    )
    options = plan_engine(config, {"d": "/w/d", "a": "/w/a", "c": "/w/c"}).options
    assert options == {"draft_model": "/w/d", "lora_adapter": "/w/a,b,/w/c"}


def test_a_configuration_becomes_slots_context_and_options() -> None:
    document = {
        "name": "m",
        "backend": "b",
        "threads": 3,
        "options": ["parallel:2", "use_jinja:true"],
        "context_size": 9,
    }
    engine = plan_engine(parse_model_config(document), {})
    assert (engine.slots, engine.context, engine.options) == (2, 9, {"threads": "3", "use_jinja": "true"})


def test_a_name_that_is_no_file_is_left_to_the_engine() -> None:
    config = parse_model_config({"name": "m", "backend": "vllm", "parameters": {"model": "org/repo"}})
    assert plan_engine(config, {}).model == "org/repo"


def test_the_backend_is_named_or_follows_from_the_weights() -> None:
    assert backend_of(parse_model_config({"name": "m", "parameters": {"model": "m.gguf"}})) == "llama-cpp"
    with pytest.raises(InvalidInput, match="names no backend"):
        backend_of(parse_model_config({"name": "m", "parameters": {"model": "m.bin"}}))


@pytest.mark.parametrize(
    ("replicas", "spread"), [("all", True), (True, True), ("auto", False), ("", False), (False, False)]
)
def test_replicas_in_a_seed(replicas: object, spread: bool) -> None:
    [found] = parse_seed([{"model_name": "m", "replicas": replicas}], source="x")
    assert found.spread_all is spread


@pytest.mark.parametrize(
    "document",
    [
        {"model_name": "m"},
        ["m"],
        [{"model_name": ""}],
        [{"model_name": "m", "replicas": 3}],
        [{"model_name": "m", "min_replicas": "2"}],
        [{"model_name": "m", "min_replicas": True}],
        [{"model_name": "m", "replicas": "all", "min_replicas": 2}],
        [{"model_name": "m", "node_selector": "gpu"}],
    ],
)
def test_a_wrong_seed_says_where(document: object) -> None:
    with pytest.raises(InvalidInput, match="x"):
        parse_seed(document, source="x")
