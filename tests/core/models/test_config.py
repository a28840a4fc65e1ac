"""LocalAI's YAML form of a model: what is understood, what is kept, what is refused and how that is said."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.core.errors import InvalidInput
from corral.core.models.config import (
    ConfigFile,
    Template,
    canonical_json,
    config_revision,
    deleted_revision,
    parse_model_config,
)
from corral.core.models.config_schema import FIELDS, PARAMETERS, refuse_unknown, suggest
from corral.core.models.localai_options import StagedModel, model_options
from corral.formats.localai_proto import MODEL_OPTIONS
from corral.system.yaml import load_yaml

FULL = """
name: qwen3-4b
backend: llama-cpp
description: A model
context_size: 8192
f16: true
flash_attention: on
known_usecases: [chat, vision]
parameters:
  model: qwen/qwen3-4b.gguf
  temperature: 0.7
  top_k: 20
  logit_bias: {50256: -100}
mmproj: qwen/mmproj.gguf
template:
  use_tokenizer_template: true
  join_chat_messages_by_character: ""
stopwords: ["<|im_end|>", 2]
options: ["parallel:4"]
roles: {user: USER, assistant: 7}
aliases: [gpt-4, small]
download_files:
- filename: qwen/qwen3-4b.gguf
  uri: huggingface://owner/repo/qwen3-4b.gguf
  sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
limits: {max_concurrent: 3}
made_up_by_a_later_localai: {deep: [1]}
"""


def parse(text: str) -> Any:
    return parse_model_config(load_yaml(text))


def test_a_whole_configuration_is_understood() -> None:
    config = parse(FULL)
    assert (config.name, config.backend, config.model) == ("qwen3-4b", "llama-cpp", "qwen/qwen3-4b.gguf")
    assert config.template == Template(use_tokenizer_template=True, join_chat_messages_by_character="")
    assert config.aliases == ("gpt-4", "small")
    assert config.stopwords == ("<|im_end|>", "2")
    assert config.roles == {"user": "USER", "assistant": "7"}
    assert config.weight_paths == ("qwen/qwen3-4b.gguf", "qwen/mmproj.gguf")
    assert config.files == (ConfigFile("qwen/qwen3-4b.gguf", "huggingface://owner/repo/qwen3-4b.gguf", "a" * 64),)
    assert (config.context_size_or_default, config.max_concurrent) == (8192, 3)
    assert config.document["flash_attention"] == "on"


def test_what_is_not_known_is_kept_and_can_be_named() -> None:
    config = parse(FULL)
    assert config.unknown_fields == ("made_up_by_a_later_localai",)
    assert config.document["made_up_by_a_later_localai"] == {"deep": [1]}


def test_what_is_not_set_is_not_invented() -> None:
    config = parse("name: tiny\ncontext_size:\nparameters:\ntemplate:\n")
    assert (config.context_size, config.context_size_or_default, config.backend) == (None, 4096, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "is a map of fields"),
        ("name:", "no name"),
        ("backend: llama-cpp", "no name"),
        ("name: a\ncontext_size: big", "context_size must be a whole number, not 'big'"),
        ("name: a\ncontext_size: true", "context_size must be a whole number, not True"),
        ("name: a\nembeddings: yes", "embeddings must be true or false, not 'yes'"),
        ("name: a\nstopwords: end", "stopwords must be a list of strings, not 'end'"),
        ("name: a\ntemplate: chatml", "template must be a map, not 'chatml'"),
        ("name: a\nparameters: {top_p: much, top_k: [1]}", "2 invalid fields: parameters.top_p must be a number"),
        ("name: a\nparameters: {model: ../../etc/shadow}", "within the models directory"),
        ("name: a\nparameters: {model: /etc/shadow}", "within the models directory"),
        ("name: a\nmmproj: a/../../b", "within the models directory"),
        ("name: a\nlora_adapters: [ok, ~/x]", "within the models directory"),
        ("name: a/../b", "is not a valid model name"),
        ("name: 'a#1'", "is not a valid model name"),
        ('name: "a\\nb"', "is not a valid model name"),
        ("name: a\nbackend: 'rm -rf'", "not a backend's name"),
        ("name: a\naliases: [a]", "an alias of itself"),
        ("name: a\nalias: a", "an alias of itself"),
        ("name: a\nalias: b\nbackend: c", "its own backend, model or aliases"),
        ("name: a\ncontext_size: 5000000000", "fits into 32 bits"),
        ("name: a\ncontext_size: -2", "context_size must be"),
        ("name: a\nseed: .nan", "the number nan"),
        ("name: a\ndownload_files: x", "download_files must be a list"),
        ("name: a\ndownload_files: [{filename: ../x, uri: 'https://h/x'}]", "within the models directory"),
        ("name: a\ndownload_files: [{filename: x}]", "no uri"),
        ("name: a\ndownload_files: [{filename: x, uri: 'https://h/x', sha256: abc}]", "64 hexadecimal digits"),
        ("name: a\nblob: !!binary aGk=", "a value of the type bytes"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert said in str(refused.value)


def test_the_revision_follows_what_is_said_not_how_it_is_written() -> None:
    one = parse("name: a\nbackend: b\nparameters: {model: m, top_k: 1}\n")
    same = parse("# a comment\nparameters:\n  top_k: 1\n  model: 'm'\nbackend: b\nname: a\n")
    other = parse("name: a\nbackend: b\nparameters: {model: m, top_k: 2}\n")
    assert config_revision(one) == config_revision(same) != config_revision(other)
    assert len(config_revision(one)) == 64
    assert deleted_revision("a") not in (config_revision(one), deleted_revision("b"))


def test_what_is_stored_is_read_back_as_the_same_configuration() -> None:
    config = parse(FULL)
    assert parse_model_config(load_yaml(canonical_json(config))) == config


_TEXTS = st.sampled_from(["", "x", "../y", "/z", "#", "1", "image", "word", "name"])
_NUMBERS = st.sampled_from([0, 1, -1, 2.5, float("nan"), 1 << 40, 1 << 70])
_SCALARS = st.none() | st.booleans() | _NUMBERS | _TEXTS
_FLAT = _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(_TEXTS, _SCALARS, max_size=2)
_VALUES = _FLAT | st.lists(_FLAT, max_size=2)
_KEYS = st.sampled_from([*FIELDS, "download_files", "made_up"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=400)
@given(st.dictionaries(_KEYS, _VALUES, max_size=6), st.dictionaries(st.sampled_from(sorted(PARAMETERS)), _SCALARS))
def test_no_document_does_anything_but_be_understood_or_refused(
    document: dict[str, Any], parameters: dict[str, Any]
) -> None:
    try:
        config = parse_model_config({**document, "name": "m", "parameters": parameters})
    except InvalidInput:
        return
    assert parse_model_config(config.document) == config
    MODEL_OPTIONS.encode(model_options(config, StagedModel()))


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("context_sizee", ["context_size"]),
        ("contextsize", ["context_size"]),
        ("temperature", ["parameters.temperature"]),
        ("parameters.temprature", ["parameters.temperature"]),
        ("template.use_tokeniser_template", ["template.use_tokenizer_template"]),
        ("pipeline_type", ["diffusers.pipeline_type"]),
        ("zzzzzz", []),
    ],
)
def test_for_an_unknown_field_the_nearest_known_one_is_suggested(field: str, meant: list[str]) -> None:
    assert suggest(field) == meant


def test_unknown_fields_are_refused_unless_they_were_there_before() -> None:
    document = {"name": "m", "context_sizee": 1, "parameters": {"modell": "x"}}
    with pytest.raises(
        InvalidInput, match=r"2 unknown fields: context_sizee \(did you mean context_size\?\), parameters"
    ):
        refuse_unknown(document)
    refuse_unknown(document, known={"context_sizee": 2, "parameters": {"modell": "y"}})
    with pytest.raises(InvalidInput, match=r"an unknown field: parameters\.modell"):
        refuse_unknown(document, known={"context_sizee": 2})
    with pytest.raises(InvalidInput, match="45 more"):
        refuse_unknown({f"{number}unknown": 1 for number in range(50)})


LOCALAI = """
name: m
artifacts: []
known_input_modalities: [image]
known_output_modalities: [text]
compression: {enabled: true}
reasoning_effort: low
chat_template_kwargs: {enable_thinking: false}
feature_flags: {x: true}
mcp: {remote: '', stdio: ''}
agent: {max_attempts: 3}
pii: {enabled: true}
pii_detection: {min_score: 0.5}
router: {classifier: score}
proxy: {mode: passthrough}
mitm: {hosts: [a]}
limits: {max_concurrent: 2, retry_after_seconds: 5}
grpc: {attempts: 3, attempts_sleep_time: 1}
tts: {voice: v, audio_path: a.wav, voice_cloning: true}
pipeline: {llm: a, tts: b}
grammar: "root ::= x"
n_draft: 4
mirostat: 1
mirostat_eta: 0.1
mirostat_tau: 5
prompt_cache_path: cache
disable_log_stats: true
parameters: {model: a, max_completion_tokens: 9, encoding_format: float, pooling: mean, pooling_half_life_tokens: 3}
"""
"""Fields of LocalAI's that stand in neither its documentation's example nor Corral's own."""


def test_every_field_of_localais_configuration_is_known() -> None:
    assert parse(LOCALAI).unknown_fields == ()
