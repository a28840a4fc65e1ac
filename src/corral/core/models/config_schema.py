"""What the fields of a model configuration must be, as LocalAI's typed configuration has them.

Fields that are not in the table are kept as they are: a newer LocalAI may know them, and a backend may read them.
Whoever writes one by hand is asked whether that was meant.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from corral.core.errors import InvalidInput
from corral.core.suggestions import near_names

LARGEST_FLOAT = 3.4e38
UNKNOWN_SHOWN = 5
Read = Callable[[Any], Any]
Table = Mapping[str, "Read | Table"]


@dataclass(frozen=True, slots=True)
class Problem:
    field: str
    wanted: str
    found: Any

    def __str__(self) -> str:
        return f"{self.field} must be {self.wanted}, not {_shown(self.found)}"


class WrongValue(Exception):
    """Says what is expected; the caller adds the field."""


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    return repr(value)[:80]


def text(value: Any) -> str:
    """Accepts a number or boolean for a text, as Go does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise WrongValue("text")


def whole(value: Any) -> int:
    """Backends use 32 bits."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue("a whole number")
    if not -(1 << 31) <= value < 1 << 31:
        raise WrongValue("a whole number that fits into 32 bits")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongValue("a number")
    if abs(value) > LARGEST_FLOAT:
        raise WrongValue("a number that fits into 32 bits")
    return float(value)


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("true or false")
    return value


def anything(value: Any) -> Any:
    return value


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise WrongValue("a list of strings")
    return tuple(text(item) for item in value)


def numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)):
        raise WrongValue("a list of numbers")
    return tuple(number(item) for item in value)


def mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongValue("a map")
    return value


def text_map(value: Any) -> Mapping[str, str]:
    return {str(key): text(item) for key, item in mapping(value).items()}


def _names(read: Read, names: str) -> dict[str, Read]:
    return dict.fromkeys(names.split(), read)


PARAMETERS: Table = {
    **_names(text, "model negative_prompt tokenizer language response_format"),
    **_names(whole, "top_k max_tokens seed repeat_last_n n_keep batch clip_skip n n_draft mirostat"),
    **_names(whole, "top_logprobs max_completion_tokens pooling_half_life_tokens"),
    **_names(text, "encoding_format pooling"),
    **_names(number, "temperature top_p min_p repeat_penalty frequency_penalty presence_penalty typical_p tfz"),
    **_names(number, "negative_prompt_scale rope_freq_base rope_freq_scale mirostat_eta mirostat_tau"),
    **_names(flag, "ignore_eos translate echo"),
    "logit_bias": mapping,
    "logprobs": anything,
    # Entries of LocalAI's gallery have these fields here, where nothing reads them.
    **_names(anything, "voice context_size f16 mmap threads"),
}

TEMPLATE: Table = {
    **_names(text, "chat chat_message completion edit function multimodal reply_prefix"),
    **_names(text, "join_chat_messages_by_character image"),
    "use_tokenizer_template": flag,
}

DOWNLOAD: Table = _names(text, "filename sha256 uri")

FIELDS: Table = {
    **_names(text, "name backend description usage alias main_gpu tensor_split system_prompt mmproj draft_model"),
    **_names(text, "lora_adapter lora_base flash_attention cache_type_k cache_type_v quantization load_format dtype"),
    **_names(text, "type rope_scaling prompt_cache_path reasoning_effort grammar"),
    **_names(whole, "n_draft mirostat"),
    **_names(number, "mirostat_eta mirostat_tau"),
    **_names(whole, "context_size threads gpu_layers ngqa swap_space max_model_len tensor_parallel_size step"),
    **_names(number, "rms_norm_eps lora_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow"),
    **_names(number, "gpu_memory_utilization cfg_scale"),
    **_names(flag, "f16 mmap mmlock low_vram numa embeddings reranking no_mulmatq no_kv_offloading"),
    **_names(flag, "trust_remote_code enforce_eager disable_log_stats cuda disabled pinned debug"),
    **_names(flag, "prompt_cache_all prompt_cache_ro"),
    **_names(texts, "aliases known_usecases stopwords cutstrings extract_regex trimspace trimsuffix options overrides"),
    **_names(texts, "lora_adapters concurrency_groups known_input_modalities known_output_modalities"),
    "lora_scales": numbers,
    "roles": text_map,
    **_names(mapping, "function reasoning chat_template_kwargs engine_args pipeline feature_flags"),
    **_names(mapping, "compression mcp agent pii pii_detection router proxy mitm"),
    **_names(anything, "download_files artifacts golden_prompts"),
    "limit_mm_per_prompt": _names(whole, "image video audio"),
    "parameters": PARAMETERS,
    "template": TEMPLATE,
    "limits": _names(whole, "max_concurrent retry_after_seconds"),
    "grpc": _names(whole, "attempts attempts_sleep_time"),
    "tts": {**_names(text, "voice audio_path"), "voice_cloning": flag},
    "diffusers": {
        **_names(text, "pipeline_type scheduler_type clip_model clip_subfolder control_net enable_parameters"),
        **_names(flag, "cuda img2img"),
        "clip_skip": whole,
    },
}

SECTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "function": "disable_no_action grammar no_action_function_name no_action_description_name response_regex"
        " json_regex_match argument_regex argument_regex_key_name argument_regex_value_name replace_function_results"
        " replace_llm_results capture_llm_results function_name_key function_arguments_key xml_format_preset"
        " xml_format automatic_tool_parsing_fallback disable_peg_parser return_name_in_function_response",
        "reasoning": "disable_reasoning_tag_prefill disable strip_reasoning_only thinking_start_tokens tag_pairs",
        "compression": "enabled trigger_at_ratio keep_tail_tokens max_summary_tokens compressor_model"
        " on_post_compression_overflow",
        "mcp": "remote stdio",
        "agent": "max_attempts max_iterations enable_reasoning enable_planning enable_mcp_prompts"
        " enable_plan_re_evaluator disable_sink_state loop_detection max_adjustment_attempts force_reasoning_tool",
        "pipeline": "tts llm transcription vad sound_detection sound_detection_window_ms sound_detection_hop_ms"
        " reasoning_effort streaming disable_thinking max_history_items compaction voice_recognition turn_detection"
        " classifier disable_warmup",
        "router": "classifier policies candidates fallback classifier_model classifier_cache_size"
        " activation_threshold classifier_system_template score_normalization embedding_cache knn",
        "proxy": "upstream_url mode provider api_key_env api_key_file upstream_model request_timeout_seconds"
        " cache_prompt",
        "mitm": "hosts",
        "pii": "enabled detectors reversible_redactions reversible_token_prefix reversible_token_suffix",
        "pii_detection": "min_score default_action entity_actions builtins patterns",
    }.items()
}
"""Names that LocalAI knows in sections that Corral only passes on. Their content differs between LocalAI's versions, so
other names are accepted there, except those that are close to a known one."""


def find_problems(document: Mapping[str, Any], table: Table, *, within: str = "") -> Iterator[Problem]:
    """An empty value (`key:`) means that the field is not set, as in Go."""
    for key, value in document.items():
        kind = table.get(key)
        if kind is None or value is None:
            continue
        where = f"{within}{key}"
        if isinstance(kind, Mapping):
            if isinstance(value, Mapping):
                yield from find_problems(value, kind, within=f"{where}.")
            else:
                yield Problem(where, "a map", value)
            continue
        try:
            kind(value)
        except WrongValue as wrong:
            yield Problem(where, str(wrong), value)


def find_unknown(document: Mapping[str, Any], table: Table = FIELDS, *, within: str = "") -> Iterator[str]:
    for key, value in document.items():
        kind = table.get(key)
        if kind is None:
            yield f"{within}{key}"
        elif isinstance(kind, Mapping) and isinstance(value, Mapping):
            yield from find_unknown(value, kind, within=f"{within}{key}.")


def find_mistyped(document: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a section of LocalAI that are nearly one of its names."""
    for section, names in SECTIONS.items():
        content = document.get(section)
        for key in content if isinstance(content, Mapping) else ():
            if key not in names and near_names(key, sorted(names), most=1):
                yield f"{section}.{key}"


def suggest(unknown: str) -> list[str]:
    """Suggestions for a mistyped field: the same name in another section, or similar names in this one."""
    within, _, name = unknown.rpartition(".")
    elsewhere = [path for path in _PATHS if path.rpartition(".")[2] == name]
    paths = [*_PATHS, *(f"{within}.{known}" for known in SECTIONS.get(within, ()))]
    beside = {path.rpartition(".")[2]: path for path in paths if path.rpartition(".")[0] == within}
    return elsewhere or [beside[near] for near in near_names(name, list(beside), most=1)]


def _paths(table: Table, within: str = "") -> Iterator[str]:
    for name, kind in table.items():
        yield f"{within}{name}"
        if isinstance(kind, Mapping):
            yield from _paths(kind, f"{within}{name}.")


_PATHS = tuple(_paths(FIELDS))


def refuse_unknown(document: Mapping[str, Any], *, known: Mapping[str, Any] | None = None) -> None:
    """Rejects mistyped fields, which would have no effect. `known`: a document whose unknown fields were accepted
    before."""
    before = {*find_unknown(known), *find_mistyped(known)} if known is not None else set()
    unknown = [field for field in (*find_unknown(document), *find_mistyped(document)) if field not in before]
    if not unknown:
        return
    shown = []
    for field in unknown[:UNKNOWN_SHOWN]:
        near = suggest(field)
        shown.append(f"{field[:80]} (did you mean {' or '.join(near)}?)" if near else field[:80])
    if len(unknown) > UNKNOWN_SHOWN:
        shown.append(f"{len(unknown) - UNKNOWN_SHOWN} more")
    what = "an unknown field" if len(unknown) == 1 else f"{len(unknown)} unknown fields"
    raise InvalidInput(
        f"the model configuration has {what}: {', '.join(shown)}. Correct it; or, if a backend or a newer LocalAI reads"
        " it, save it with --force (`force` in the API)"
    )


def check_fields(document: Mapping[str, Any]) -> None:
    problems = [str(problem) for problem in find_problems(document, FIELDS)]
    if problems:
        raise InvalidInput(f"the model configuration has {_count(len(problems))}: {'; '.join(problems)}")


def _count(problems: int) -> str:
    return "an invalid field" if problems == 1 else f"{problems} invalid fields"
