"""What a backend is told when it loads a model."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from corral.core.models.config import parse_model_config
from corral.core.models.localai_options import StagedModel, model_options
from corral.formats.localai_proto import MODEL_OPTIONS

STAGED = StagedModel(models_dir="/w/m", paths={"a/b.gguf": "/w/m/a/b.gguf", "p.gguf": "/w/m/p.gguf"})


def options(
    *, backend: str = "", fitted: Mapping[str, int] = MappingProxyType({}), staged: StagedModel = STAGED, **fields: Any
) -> dict[str, Any]:
    config = parse_model_config({"name": "m", "parameters": {"model": "a/b.gguf"}, **fields})
    found = model_options(config, staged, backend=backend, fitted=fitted)
    assert set(MODEL_OPTIONS.decode(MODEL_OPTIONS.encode(found))) == set(found)
    return found


def test_what_is_not_configured_is_as_localai_has_it() -> None:
    assert options() == {
        "Model": "a/b.gguf",
        "ModelFile": "/w/m/a/b.gguf",
        "ModelPath": "/w/m",
        "ContextSize": 4096,
        "NBatch": 512,
        "NGPULayers": 99_999_999,
        "Threads": 1,
        "MMap": True,
        "FlashAttention": "auto",
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"context_size": -1, "f16": True, "gpu_layers": 3}, {"ContextSize": -1, "F16Memory": True, "NGPULayers": 3}),
        ({"flash_attention": True, "main_gpu": 0}, {"FlashAttention": "true", "MainGPU": "0"}),
        ({"embeddings": True, "context_size": 2048}, {"Embeddings": True, "NBatch": 2048}),
        ({"known_usecases": ["score"]}, {"EnableScore": True, "NBatch": 4096}),
        ({"mmproj": "p.gguf"}, {"MMProj": "/w/m/p.gguf"}),
        ({"lora_adapters": ["p.gguf", "gone"], "lora_scales": [0.5, 1]}, {"LoraAdapters": ["/w/m/p.gguf"]}),
        ({"options": ["a:b"], "overrides": ["c:d"]}, {"Options": ["a:b"], "Overrides": ["c:d"]}),
        ({"limit_mm_per_prompt": {"image": 2}}, {"LimitImagePerPrompt": 2}),
        ({"engine_args": {"x": 1}}, {"EngineArgs": json.dumps({"x": 1})}),
        ({"diffusers": {"pipeline_type": "p", "cuda": True, "clip_skip": 2}}, {"PipelineType": "p", "CUDA": True}),
        ({"tts": {"audio_path": "p.gguf"}}, {"AudioPath": "/w/m/p.gguf"}),
        ({"function": {"grammar": {"triggers": [{"word": "<x>"}]}}}, {"GrammarTriggers": [{"word": "<x>"}]}),
    ],
)
def test_each_field_reaches_its_place(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = options(**fields)
    assert {name: found.get(name) for name in expected} == expected


def test_a_file_that_was_not_staged_is_sent_as_nothing() -> None:
    found = options(mmproj="gone.gguf", staged=StagedModel())
    assert not {"MMProj", "ModelFile", "ModelPath"} & set(found)


def test_memory_is_not_mapped_where_that_is_unsafe() -> None:
    assert "MMap" not in options(backend="intel-sycl-f16-llama-cpp")
    assert "MMap" not in options(mmap=False)


FITTED = {"slots": 8, "context": 4096, "threads": 6, "gpu_layers": 33, "prompt_cache_mib": 512}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {},
            {
                "ContextSize": 8 * 4096,
                "Threads": 6,
                "NGPULayers": 33,
                "Options": ["parallel:8", "kv_unified:false", "cache_ram:512"],
            },
            id="all-of-it",
        ),
        pytest.param(
            {"threads": 3, "gpu_layers": 0, "options": ["cache_ram:1", "unified_kv:true"]},
            {"Threads": 3, "NGPULayers": None, "Options": ["cache_ram:1", "unified_kv:true", "parallel:8"]},
            id="unless-it-is-configured",
        ),
        pytest.param(
            {"context_size": 8192, "options": ["n_parallel:4"]},
            {"ContextSize": 8192, "Options": ["n_parallel:4", "cache_ram:512"]},
            id="localais-slots-share-the-configured-context",
        ),
        pytest.param(
            {"known_usecases": ["score"]},
            {"Options": ["parallel:8", "cache_ram:512"]},
            id="scoring-needs-one-cache",
        ),
    ],
)
def test_llama_cpp_is_loaded_as_its_worker_planned(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    found = options(fitted=FITTED, **fields)
    assert {name: found.get(name) for name in expected} == expected


def test_a_context_too_large_for_the_protocol_is_limited() -> None:
    assert options(fitted={"slots": 32, "context": 1 << 30})["ContextSize"] == (1 << 31) - 1


def test_one_slot_is_localais_default() -> None:
    found = options(fitted={"slots": 1, "context": 2048})
    assert (found["ContextSize"], "Options" in found) == (2048, False)
