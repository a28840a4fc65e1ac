"""Which edits a process has to be started anew for."""

import pytest

from corral.core.models.config import ModelConfig
from corral.core.models.revisions import is_same_load, load_revision, must_be_proven
from corral.store.serving.models import parse_config_text

BASE = "name: tiny\nbackend: llama-cpp\nmmproj: a.gguf\nparameters: {model: tiny.gguf, temperature: 0.5}\n"


def config(more: str = "", *, base: str = BASE) -> ModelConfig:
    return parse_config_text(base + more)


@pytest.mark.parametrize(
    "more",
    [
        "description: small\n",
        "aliases: [small]\n",
        "system_prompt: Be brief.\n",
        "stopwords: [x]\n",
        "template: {chat: '{{.Input}}'}\n",
        "roles: {user: U}\n",
        "concurrency_groups: [big]\n",
        "pinned: true\n",
        "known_usecases: [chat]\n",
        "function: {disable_no_action: true}\n",
    ],
)
def test_what_frontends_and_controllers_apply_reloads_nothing(more: str) -> None:
    assert is_same_load(config(), config(more))
    assert not must_be_proven(config(), config(more))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "threads: 2\n"),
        ("", "context_size: 512\n"),
        ("", "options: ['parallel:2']\n"),
        ("", "overrides: ['a=int:1']\n"),
        ("", "embeddings: true\n"),
        ("", "gpu_layers: 3\n"),
        ("", "f16: true\n"),
        ("", "known_usecases: [score]\n"),
        ("", "draft_model: b.gguf\n"),
        ("", "download_files: [{filename: tiny.gguf, uri: 'https://host/tiny.gguf'}]\n"),
        ("", "engine_args: {max: 1}\n"),
        ("", "function: {grammar: {triggers: [{word: x}]}}\n"),
        ("lora_adapter: b.gguf\n", "lora_base: b.gguf\n"),
        ("draft_model: b.gguf\n", "lora_adapter: b.gguf\n"),
    ],
)
def test_what_a_process_is_started_with_has_to_be_proven(before: str, after: str) -> None:
    assert must_be_proven(config(before), config(after))
    assert must_be_proven(config(after), config(before))


def test_another_backend_or_other_weights_have_to_be_proven() -> None:
    assert must_be_proven(config(), config(base=BASE.replace("llama-cpp", "vllm")))
    assert must_be_proven(config(), config(base=BASE.replace("tiny.gguf", "other.gguf")))


def test_whoever_disables_or_redirects_a_model_wants_its_replicas_gone() -> None:
    assert not must_be_proven(config(), config("disabled: true\nthreads: 2\n"))
    assert not must_be_proven(config(), parse_config_text("name: tiny\nalias: other\n"))
    assert not is_same_load(config(), parse_config_text("name: tiny\nalias: other\n"))


def test_a_configuration_that_names_no_backend_is_like_no_other() -> None:
    assert load_revision(parse_config_text("name: tiny\n")) != load_revision(
        parse_config_text("name: tiny\nbackend: x\n")
    )
