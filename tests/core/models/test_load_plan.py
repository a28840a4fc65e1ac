"""From a configuration to files and flags; and scheduling given at start."""

import pytest

from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig, parse_model_config
from corral.core.models.load_plan import (
    Elastic,
    address_path,
    backend_of,
    borrowed_files,
    by_configured_name,
    capacity_of,
    find_clash,
    find_elastic,
    local_name,
    plan_engine,
    plan_weights,
)
from corral.core.replicas.scheduling_file import parse_seed


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
    weights = local_name(config, config.model)
    assert {file.filename: file.uri for file in plan.files} == {
        "m/eyes.gguf": "https://host/eyes.gguf",
        weights: "hf://org/repo/weights.gguf@main",
    }
    assert set(plan.paths) == {"m/eyes.gguf", weights}
    engine = plan_engine(config, by_configured_name(config, {weights: "/w", "m/eyes.gguf": "/e"}))
    assert (engine.model, engine.options) == ("/w", {"mmproj": "/e"})


@pytest.mark.parametrize(
    ("address", "last"),
    [
        ("https://host/x/model.gguf", "model.gguf"),
        ("https://host/x/model.gguf?download=true#part", "model.gguf"),
        ("https://host/x/a@b.gguf", "a@b.gguf"),
        ("hf://org/repo/model.gguf@v1/2", "model.gguf"),
        ("hf://org/repo/", "repo"),
        ("https://host/x/..", "weights"),
        ("https://host/?file=1", "host"),
        (f"https://host/{'x' * 300}", "weights"),
    ],
)
def test_a_file_named_by_address_is_kept_by_all_of_it_and_shown_by_its_last_part(address: str, last: str) -> None:
    directory, _, name = address_path(address).partition("/")
    assert (len(directory), name) == (16, last)
    assert address_path(address) != address_path(f"{address}x")


def test_namesakes_from_different_places_are_different_files() -> None:
    places = ["https://host-a/x/model.gguf", "https://host-b/y/model.gguf", "hf://org/repo/model.gguf"]
    document = {
        "name": "m",
        "backend": "b",
        "parameters": {"model": places[0]},
        "draft_model": places[1],
        "lora_adapters": [places[2], "model.gguf"],
    }
    config = parse_model_config(document)
    names = [file.filename for file in plan_weights(config).files]
    assert len(set(names)) == 3
    assert find_clash(config, ()) == ""
    engine = plan_engine(config, by_configured_name(config, {name: f"/{name}" for name in names}))
    assert engine.model == f"/{names[0]}"
    assert engine.options == {"draft_model": f"/{names[1]}", "lora_adapter": f"/{names[2]},model.gguf"}


def listing(name: str, *files: tuple[str, str, str]) -> ModelConfig:
    keys = ("filename", "uri", "sha256")
    return parse_model_config({"name": name, "download_files": [dict(zip(keys, file, strict=True)) for file in files]})


ONE = ("f.gguf", "https://a/f.gguf", "a" * 64)


@pytest.mark.parametrize(
    ("file", "clashes"),
    [
        (ONE, False),
        (("f.gguf", "https://a/f.gguf", ""), False),
        (("f.gguf", "https://mirror/f.gguf", f"sha256:{'A' * 64}"), False),
        (("other.gguf", "https://b/f.gguf", "b" * 64), False),
        (("f.gguf", "https://b/f.gguf", ""), True),
        (("f.gguf", "https://a/f.gguf", "b" * 64), True),
        (("./f.gguf", "https://b/f.gguf", "b" * 64), True),
    ],
)
def test_one_file_name_for_two_downloads_is_a_clash_between_models_and_within_one(
    file: tuple[str, str, str], clashes: bool
) -> None:
    between = find_clash(listing("new", file), [listing("old", ONE)])
    within = find_clash(listing("new", ONE, file), [])
    assert (bool(between), bool(within)) == (clashes, clashes)
    if clashes:
        assert "'old'" in between
        assert "another filename" in between
        assert "twice" in within


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


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"lora_scale": 0.5}, {"lora_adapter": "a,b", "lora_scale": "0.5"}),
        ({"lora_scales": [2]}, {"lora_adapter": "a,b", "lora_scales": "1.0,2.0"}),
        ({"lora_scale": 0.5, "lora_scales": [2, 3, 4]}, {"lora_scale": "0.5", "lora_scales": "0.5,2.0"}),
        ({"lora_adapter": "", "lora_scales": [2]}, {"lora_adapter": "b", "lora_scales": "2.0"}),
        ({"lora_adapters": ["b", "c"], "lora_scales": [2]}, {"lora_adapter": "a,b,c", "lora_scales": "1.0,2.0,1.0"}),
        ({"lora_adapter": "a,1"}, {"lora_adapter": '["a,1", "b"]'}),
        ({"lora_adapter": "a,1", "lora_adapters": []}, {"lora_adapter": '["a,1"]'}),
    ],
)
def test_adapters_keep_their_names_and_scales(fields: dict[str, object], options: dict[str, str]) -> None:
    document = {"name": "m", "backend": "b", "lora_adapter": "a", "lora_adapters": ["b"], **fields}
    given = plan_engine(parse_model_config(document), {}).options
    assert {"lora_adapter": "a,b", **options} == given


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


@pytest.mark.parametrize(
    ("fields", "elastic"),
    [
        pytest.param({}, Elastic.CONTEXT, id="nothing-is-configured"),
        pytest.param({"options": ["parallel:2"]}, Elastic.CONTEXT, id="slots-are-configured"),
        pytest.param({"context_size": 2048}, Elastic.SLOTS, id="the-context-of-a-request-is-configured"),
        pytest.param({"context_size": -1}, Elastic.SLOTS, id="all-the-context-that-the-model-was-trained-for"),
        pytest.param({"context_size": 2048, "options": ["slots:2"]}, Elastic.NOTHING, id="both-are-configured"),
        pytest.param({"parameters": {"model": "org/repo"}}, Elastic.NOTHING, id="another-engine"),
    ],
)
def test_what_an_engine_gets_more_of(fields: dict[str, object], elastic: Elastic) -> None:
    config = parse_model_config({"name": "m", "backend": "b", "parameters": {"model": "w.gguf"}, **fields})
    assert find_elastic(config) is elastic


def test_a_name_that_is_no_file_is_left_to_the_engine() -> None:
    config = parse_model_config({"name": "m", "backend": "vllm", "parameters": {"model": "org/repo"}})
    assert plan_engine(config, {}).model == "org/repo"


def test_the_backend_is_named_or_follows_from_the_weights() -> None:
    assert backend_of(parse_model_config({"name": "m", "parameters": {"model": "m.gguf"}})) == "llama-cpp"
    with pytest.raises(InvalidInput, match="has no backend"):
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


def naming(name: str, file: str) -> ModelConfig:
    return parse_model_config({"name": name, "backend": "b", "parameters": {"model": file}})


def test_a_new_download_does_not_take_the_name_of_a_file_that_another_model_names() -> None:
    download = listing("new", ONE)
    why = find_clash(download, [naming("old", "./f.gguf")])
    assert "'old' uses ./f.gguf" in why
    assert find_clash(download, [naming("old", "other.gguf")]) == ""
    assert find_clash(download, [naming("old", "f.gguf")], before=download) == "", "it was there before the other one"
    third = listing("third", ONE)
    assert find_clash(download, [naming("old", "f.gguf"), third]) == "", "it is a download already"
    assert find_clash(naming("old", "f.gguf"), [download]) == "", "whoever names it later means the download"


def test_a_name_that_another_model_downloads_is_fetched_from_where_that_one_gets_it() -> None:
    lender = listing("lender", ONE)
    [(name, (file, owner))] = borrowed_files(naming("m", "f.gguf"), [lender]).items()
    assert (name, file.uri, owner) == ("f.gguf", ONE[1], "lender")
    assert borrowed_files(naming("m", "other.gguf"), [lender]) == {}
    assert borrowed_files(lender, [lender]) == {}


@pytest.mark.parametrize(
    ("limit", "slots", "expected"),
    [
        pytest.param(None, None, None, id="nobody-knows"),
        pytest.param(None, 4, 4, id="as-many-as-the-engine-can"),
        pytest.param(2, 4, 2, id="as-many-as-the-configuration-allows"),
        pytest.param(8, 4, 4, id="never-more-than-the-engine-can"),
        pytest.param(3, None, 3, id="of-an-engine-that-does-not-tell"),
        pytest.param(0, 4, 4, id="zero-is-no-limit"),
    ],
)
def test_how_many_requests_a_replica_works_on(limit: int | None, slots: int | None, expected: int | None) -> None:
    limits = {"limits": {"max_concurrent": limit}} if limit is not None else {}
    config = parse_model_config({"name": "m", "backend": "b", **limits})
    assert capacity_of(config, slots) == expected


def test_a_field_without_effect_is_refused_at_start() -> None:
    with pytest.raises(InvalidInput, match="min_prefix_match has no effect"):
        parse_seed([{"model_name": "m", "min_prefix_match": 0.3}], source="test")
    [plain] = parse_seed([{"model_name": "m", "min_prefix_match": 0}], source="test")
    assert plain.model == "m"
