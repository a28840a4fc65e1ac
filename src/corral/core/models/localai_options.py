"""The fields of LocalAI's `ModelOptions`, with which a backend loads a model, from the configuration."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from corral.core.models.config import ModelConfig
from corral.core.models.config_schema import text
from corral.core.models.load_plan import LOCALAI_SLOT_OPTIONS, named_options
from corral.formats.localai_proto import MODEL_OPTIONS
from corral.formats.protobuf import Schema

DEFAULT_BATCH = 512
ALL_GPU_LAYERS = 99_999_999
INT32_MOST = (1 << 31) - 1

_PLAIN: Mapping[str, str] = {
    "f16": "F16Memory",
    "mmlock": "MLock",
    "low_vram": "LowVRAM",
    "numa": "NUMA",
    "main_gpu": "MainGPU",
    "tensor_split": "TensorSplit",
    "rms_norm_eps": "RMSNormEps",
    "ngqa": "NGQA",
    "cfg_scale": "CFGScale",
    "no_mulmatq": "NoMulMatQ",
    "quantization": "Quantization",
    "lora_scale": "LoraScale",
    "lora_scales": "LoraScales",
    "rope_scaling": "RopeScaling",
    "yarn_ext_factor": "YarnExtFactor",
    "yarn_attn_factor": "YarnAttnFactor",
    "yarn_beta_fast": "YarnBetaFast",
    "yarn_beta_slow": "YarnBetaSlow",
    "type": "Type",
    "gpu_memory_utilization": "GPUMemoryUtilization",
    "trust_remote_code": "TrustRemoteCode",
    "enforce_eager": "EnforceEager",
    "swap_space": "SwapSpace",
    "max_model_len": "MaxModelLen",
    "tensor_parallel_size": "TensorParallelSize",
    "no_kv_offloading": "NoKVOffload",
    "load_format": "LoadFormat",
    "cache_type_k": "CacheTypeKey",
    "cache_type_v": "CacheTypeValue",
    "disable_log_stats": "DisableLogStatus",
    "dtype": "DType",
}
_PARAMETERS: Mapping[str, str] = {
    "rope_freq_base": "RopeFreqBase",
    "rope_freq_scale": "RopeFreqScale",
    "seed": "Seed",
}
_DIFFUSERS: Mapping[str, str] = {
    "pipeline_type": "PipelineType",
    "scheduler_type": "SchedulerType",
    "img2img": "IMG2IMG",
    "clip_model": "CLIPModel",
    "clip_subfolder": "CLIPSubfolder",
    "clip_skip": "CLIPSkip",
    "control_net": "ControlNet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedModel:
    """Paths of the model's files on the node that loads it."""

    models_dir: str = ""
    """The directory of relative option values."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths, by the names in the configuration. A file that is missing here was not staged."""


def model_options(
    config: ModelConfig, staged: StagedModel, *, backend: str = "", fitted: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Any]:
    """`backend`: the name of the installed build; it decides whether memory mapping is safe. `fitted`: what the worker
    planned for its machine, for all that the configuration does not set."""
    document = config.document
    fields: dict[str, Any] = {
        "Model": config.model,
        "ModelFile": staged.paths.get(config.model, ""),
        "ModelPath": staged.models_dir,
        "ContextSize": _context(config, fitted),
        "NBatch": config.parameters.get("batch") or fitted.get("batch") or _batch(config),
        "NGPULayers": _or(document.get("gpu_layers"), fitted.get("gpu_layers", ALL_GPU_LAYERS)),
        "Threads": max(1, document.get("threads") or fitted.get("threads") or 1),
        "MMap": _or(document.get("mmap"), True) and not _unsafe_to_map(backend or config.backend),
        "Embeddings": config.embeddings,
        "Reranking": config.reranking,
        "FlashAttention": _or(document.get("flash_attention"), "auto") or "auto",
        "Options": [*config.options, *_fitted_options(config, fitted)],
        "Overrides": list(config.overrides),
        "EnableScore": "score" in config.known_usecases,
    }
    fields |= _copied(document, _PLAIN)
    fields |= _copied(config.parameters, _PARAMETERS)
    fields |= _files(config, staged)
    fields |= _nested(document, staged)
    return {
        name: value for name, value in with_texts(MODEL_OPTIONS, fields).items() if value not in (None, "", [], False)
    }


def with_texts(kind: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Converts numbers to texts where the protocol needs a text."""
    return {
        name: text(value) if kind.by_name[name].kind == "string" and isinstance(value, (bool, int, float)) else value
        for name, value in fields.items()
    }


def _has_slots_of_localai(config: ModelConfig) -> bool:
    """Then its context is LocalAI's too: that of all slots together."""
    return any(name in LOCALAI_SLOT_OPTIONS for name in named_options(config))


def _context(config: ModelConfig, fitted: Mapping[str, int]) -> int:
    """Of all slots together."""
    slots, context = fitted.get("slots"), fitted.get("context")
    if not slots or not context or ((config.context_size or 0) > 0 and _has_slots_of_localai(config)):
        return config.context_size_or_default
    return min(slots * context, INT32_MOST)


def _fitted_options(config: ModelConfig, fitted: Mapping[str, int]) -> list[str]:
    """For LocalAI's llama.cpp, which has one slot unless it is told otherwise. Each slot has its own part of the cache;
    only scoring needs a common one."""
    given, found = named_options(config), []
    if fitted.get("slots", 1) > 1 and not _has_slots_of_localai(config):
        found.append(f"parallel:{fitted['slots']}")
        if "score" not in config.known_usecases and not {"kv_unified", "unified_kv"} & given.keys():
            found.append("kv_unified:false")
    if "prompt_cache_mib" in fitted and "cache_ram" not in given:
        found.append(f"cache_ram:{fitted['prompt_cache_mib']}")
    return found


def _batch(config: ModelConfig) -> int:
    """A model that reads its whole input at once (embeddings, reranking) needs a batch as large as the context."""
    whole = config.embeddings or config.reranking or "score" in config.known_usecases
    return max(DEFAULT_BATCH, config.context_size_or_default) if whole else DEFAULT_BATCH


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _unsafe_to_map(backend: str) -> bool:
    return "intel" in backend or "sycl" in backend


def _copied(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {wire: values[name] for name, wire in names.items() if values.get(name) is not None}


def _files(config: ModelConfig, staged: StagedModel) -> dict[str, Any]:
    """A file that was not staged is sent as an empty text, and left out of lists."""
    return {
        "MMProj": staged.paths.get(config.mmproj, ""),
        "DraftModel": staged.paths.get(config.draft_model, ""),
        "LoraAdapter": staged.paths.get(config.lora_adapter, ""),
        "LoraBase": staged.paths.get(config.lora_base, ""),
        "LoraAdapters": [staged.paths[name] for name in config.lora_adapters if name in staged.paths],
        "Tokenizer": _path_or_name(config.parameters.get("tokenizer"), staged),
    }


def _path_or_name(name: Any, staged: StagedModel) -> str:
    return staged.paths.get(name, name) if isinstance(name, str) else ""


def _nested(document: Mapping[str, Any], staged: StagedModel) -> dict[str, Any]:
    diffusers = document.get("diffusers") or {}
    limits = document.get("limit_mm_per_prompt") or {}
    fields = _copied(diffusers, _DIFFUSERS)
    if "CLIPModel" in fields:
        fields["CLIPModel"] = _path_or_name(fields["CLIPModel"], staged)
    fields["CUDA"] = bool(document.get("cuda") or diffusers.get("cuda"))
    fields["AudioPath"] = _path_or_name((document.get("tts") or {}).get("audio_path"), staged)
    for kind, wire in (("image", "Image"), ("video", "Video"), ("audio", "Audio")):
        if limits.get(kind) is not None:
            fields[f"Limit{wire}PerPrompt"] = limits[kind]
    if document.get("engine_args"):
        fields["EngineArgs"] = json.dumps(document["engine_args"], ensure_ascii=False)
    triggers = _map(_map(document.get("function")).get("grammar")).get("triggers")
    words = [_map(item).get("word") for item in triggers] if isinstance(triggers, list) else []
    fields["GrammarTriggers"] = [{"word": word} for word in words if isinstance(word, str) and word]
    return fields
