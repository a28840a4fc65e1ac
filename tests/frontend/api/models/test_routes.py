"""Model configurations over HTTP, on a real frontend with a gallery of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from corral.system.yaml import load_yaml
from harness.frontend import Frontend
from harness.http_files import HttpFiles
from harness.nats import Nats
from harness.programs import Answer, call

TINY = "name: {name}\nbackend: llama-cpp\ncontext_size: 512\nparameters: {{model: tiny.gguf}}\n"

INDEX = """
- name: from-base
  url: {url}/base.yaml
  description: has a base file
  tags: [chat]
  overrides:
    parameters: {{model: over.gguf, top_k: 7}}
  files:
  - {{filename: over.gguf, uri: "https://host/over.gguf", sha256: {sha}}}
- name: inline
  config_file: {{backend: piper, parameters: {{model: voice.onnx}}}}
- name: broken
  overrides: {{backend: llama-cpp, context_size: many}}
"""
BASE = """
name: base
config_file: |
  backend: llama-cpp
  context_size: 4096
  parameters: {top_k: 40, temperature: 0.2}
  template: {chat: kept-apart}
  stopwords: ["</s>"]
prompt_templates:
- name: kept-apart
  content: "{{.Input}} answer:"
"""


@pytest.fixture(scope="module")
def web() -> Iterator[HttpFiles]:
    server = HttpFiles({"/base.yaml": BASE.encode()})
    server.files["/index.yaml"] = INDEX.format(url=server.url(""), sha="b" * 64).encode()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def frontend(
    tmp_path_factory: pytest.TempPathFactory, nats_for_module: Nats, web: HttpFiles, models_dir: Path
) -> Iterator[Frontend]:
    galleries = json.dumps([{"name": "mine", "url": web.url("/index.yaml")}])
    running = Frontend(
        tmp_path_factory.mktemp("frontend"), nats_for_module, "--models-dir", str(models_dir),
        "--model-galleries", galleries, "--trusted-hosts", "127.0.0.0/8",
    )  # fmt: skip
    yield running
    running.program.stop()


def add(frontend: Frontend, name: str, more: str = "") -> dict[str, Any]:
    answer = frontend.admin.call("POST", "/api/models", body={"config": TINY.format(name=name) + more})
    assert answer.status == 201, answer.body
    added: dict[str, Any] = answer.json()
    return added


def put(frontend: Frontend, name: str, text: str, **headers: str) -> Answer:
    path = f"/api/models/{quote(name, safe='')}"
    return frontend.admin.call("PUT", path, body={"config": text}, headers=headers)


def test_a_model_is_added_shown_listed_and_deleted(frontend: Frontend) -> None:
    text = TINY.format(name="one") + "made_up: 1\n"
    added = frontend.admin.call("POST", "/api/models", body={"config": text, "force": True}).json()
    shown = frontend.admin.call("GET", "/api/models/one")
    assert shown.json() == added
    assert shown.headers["etag"] == f'"{added["revision"]}"'
    assert (added["backend"], added["model"], added["unknown_fields"]) == ("llama-cpp", "tiny.gguf", ["made_up"])
    assert "one" in [model["name"] for model in frontend.admin.call("GET", "/api/models").json()]
    assert frontend.admin.call("DELETE", "/api/models/one").status == 200
    gone = frontend.admin.call("GET", "/api/models/one")
    assert gone.status == 404


def test_a_name_may_contain_slashes_and_spaces(frontend: Frontend) -> None:
    add(frontend, "org/with space")
    path = "/api/models/" + quote("org/with space", safe="")
    assert frontend.admin.call("GET", path).json()["name"] == "org/with space"
    assert len(frontend.admin.call("GET", f"{path}/revisions").json()) == 1
    assert frontend.admin.call("DELETE", path).status == 200


def test_adding_what_is_there_is_a_conflict(frontend: Frontend) -> None:
    add(frontend, "two")
    again = frontend.admin.call("POST", "/api/models", body={"config": TINY.format(name="two")})
    assert (again.status, "already" in again.message) == (409, True)


def test_an_edit_names_the_revision_it_is_of(frontend: Frontend) -> None:
    first = add(frontend, "three")
    edited = put(frontend, "three", first["config"] + "threads: 2\n", **{"If-Match": f'"{first["revision"]}"'})
    assert edited.status == 200
    assert edited.json()["revision"] != first["revision"]
    late = put(frontend, "three", first["config"] + "threads: 3\n", **{"If-Match": f'"{first["revision"]}"'})
    assert (late.status, "changed in the meantime" in late.message) == (409, True)
    late = frontend.admin.call("DELETE", "/api/models/three", headers={"If-Match": first["revision"]})
    assert late.status == 409
    history = frontend.admin.call("GET", "/api/models/three/revisions").json()
    assert [item["revision"] for item in history] == [edited.json()["revision"], first["revision"]]
    assert put(frontend, "three", first["config"], **{"If-Match": "*"}).status == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "cannot be read"),
        ("name: other\n", "but the path has 'four'"),
        ("name: four\ncontext_size: x\ntemplate: 3\n", "2 invalid fields: context_size must be a whole number"),
        ("name: four\nparameters: {model: ../../etc/passwd}\n", "within the models directory"),
        ("name: four\nbackend: llama-cppp\n", "unknown backend 'llama-cppp': no node has it and no gallery offers"),
        ("name: four\nbackend: llama-cppp\n", "did you mean llama-cpp"),
        ("name: four\nbackend: llama-cpp\noptions: [paralel:4]\n", "paralel (did you mean parallel?)"),
        (
            "name: four\nbackend: llama-cpp\noptions: [use_jinja:true, thread:4]\n",
            "effect: thread (did you mean threads",
        ),
        (
            "name: four\nbackend: llama-cpp\ncontext_sizee: 9\n",
            "unknown field: context_sizee (did you mean context_size?)",
        ),
        ("name: four\nbackend: llama-cpp\ntemperature: 1\n", "temperature (did you mean parameters.temperature?)"),
        ("name: four\nbackend: llama-cpp\n  threads: 1\n", "line 3, column 10: mapping values are not allowed"),
        ("name: four\n", "has no backend"),
    ],
)
def test_a_bad_edit_changes_nothing_and_says_what_is_wrong(frontend: Frontend, text: str, said: str) -> None:
    if frontend.admin.call("GET", "/api/models/four").status == 404:
        add(frontend, "four")
    before = frontend.admin.call("GET", "/api/models/four").json()
    refused = put(frontend, "four", text)
    assert refused.status == 400
    assert said in refused.message
    assert frontend.admin.call("GET", "/api/models/four").json() == before


def test_a_new_model_with_an_unknown_field_is_rejected_unless_forced(frontend: Frontend) -> None:
    text = TINY.format(name="mistyped") + "context_sizee: 9\n"
    refused = frontend.admin.call("POST", "/api/models", body={"config": text})
    assert refused.status == 400
    assert "unknown field: context_sizee (did you mean context_size?)" in refused.message
    assert frontend.admin.call("GET", "/api/models/mistyped").status == 404
    assert frontend.admin.call("POST", "/api/models", body={"config": text, "force": True}).status == 201
    assert frontend.admin.call("GET", "/api/models/mistyped").json()["unknown_fields"] == ["context_sizee"]


def test_unknown_fields_of_the_body_are_rejected(frontend: Frontend) -> None:
    body = {"config": TINY.format(name="five"), "revision": "mine", "changed_by": "someone"}
    assert frontend.admin.call("POST", "/api/models", body=body).status == 400


def test_a_user_may_not_change_or_see_configurations(frontend: Frontend) -> None:
    key = frontend.admin.call("POST", "/api/keys", body={"name": "u"}).json()["key"]
    for method, path in (("GET", "/api/models"), ("POST", "/api/models/install"), ("DELETE", "/api/models/two")):
        assert call(method, frontend.url + path, key=key, body={}).status == 403
        assert call(method, frontend.url + path).status == 401


def test_galleries_offer_models_beside_corrals_own(frontend: Frontend) -> None:
    page = frontend.admin.call("GET", "/api/models/available").json()
    offered = {(model["gallery"], model["name"]) for model in page["models"]}
    assert offered == {("corral", "smollm2"), ("mine", "from-base"), ("mine", "inline"), ("mine", "broken")}
    found = frontend.admin.call("GET", "/api/models/available?term=BASE+file&limit=1").json()
    assert (found["total"], found["models"][0]["name"]) == (1, "from-base")


def test_a_gallerys_model_is_installed_with_base_overrides_files_and_templates(frontend: Frontend) -> None:
    body = {"name": "mine@from-base", "as": "renamed", "overrides": {"parameters": {"temperature": 0.9}}}
    installed = frontend.admin.call("POST", "/api/models/install", body=body)
    assert installed.status == 201, installed.body
    model = installed.json()
    assert (model["name"], model["backend"], model["model"]) == ("renamed", "llama-cpp", "over.gguf")
    assert model["files"] == [{"filename": "over.gguf", "uri": "https://host/over.gguf", "sha256": "b" * 64}]
    assert "top_k: 7" in model["config"]
    assert "temperature: 0.9" in model["config"]
    assert "{{.Input}} answer:" in model["config"]
    assert model["unknown_fields"] == []


def test_the_demo_model_is_installed_by_its_name_alone(frontend: Frontend) -> None:
    model = frontend.admin.call("POST", "/api/models/install", body={"name": "smollm2"}).json()
    assert model["backend"] == "llama-cpp"
    assert [file["sha256"][:8] for file in model["files"]] == ["b179c952"]
    again = frontend.admin.call("POST", "/api/models/install", body={"name": "smollm2"})
    assert again.status == 409


def test_a_missing_or_broken_gallery_entry_is_reported(frontend: Frontend) -> None:
    unknown = frontend.admin.call("POST", "/api/models/install", body={"name": "from-bace"})
    assert (unknown.status, "did you mean from-base" in unknown.message) == (404, True)
    broken = frontend.admin.call("POST", "/api/models/install", body={"name": "broken"})
    assert (broken.status, "context_size must be" in broken.message) == (400, True)
    assert frontend.admin.call("GET", "/api/models/broken").status == 404


def test_models_with_downloads_are_imported_before_models_that_name_their_files(
    frontend: Frontend, models_dir: Path
) -> None:
    below = models_dir / "lent"
    below.mkdir()
    (below / "a.yaml").write_text("name: borrower\nbackend: b\nparameters: {model: lent.gguf}\n")
    listed = "download_files: [{filename: lent.gguf, uri: 'https://host/lent.gguf'}]\n"
    (below / "b.yaml").write_text(f"name: lender\nbackend: b\nparameters: {{model: lent.gguf}}\n{listed}")
    answer = frontend.admin.call("POST", "/api/models/import", body={"directory": "lent"}).json()
    assert (answer["saved"], answer["refused"]) == (["lender", "borrower"], [])


def test_a_directory_of_configurations_is_imported(frontend: Frontend, models_dir: Path) -> None:
    (models_dir / "a-alias.yaml").write_text("name: nick\nalias: imported\n")
    (models_dir / "imported.yaml").write_text(
        "name: imported\nbackend: llama-cpp\nparameters: {model: x.gguf}\ntemplate: {chat: my-chat}\n"
    )
    (models_dir / "my-chat.tmpl").write_text("<{{.Input}}>")
    (models_dir / "bad.yml").write_text("name: bad\ncontext_size: x\n")
    (models_dir / "._gallery_imported.yaml").write_text("name: record\n")
    (models_dir / "weights.gguf").write_bytes(b"\x00")
    answer = frontend.admin.call("POST", "/api/models/import", body={}).json()
    assert (answer["saved"], answer["unchanged"]) == (["imported", "nick"], [])
    assert [item["file"] for item in answer["refused"]] == ["bad.yml"]
    assert "context_size" in answer["refused"][0]["reason"]
    assert "<{{.Input}}>" in frontend.admin.call("GET", "/api/models/imported").json()["config"]
    assert frontend.admin.call("GET", "/api/models/imported").json()["aliases"] == ["nick"]
    again = frontend.admin.call("POST", "/api/models/import", body={"replace": True}).json()
    assert (again["saved"], again["unchanged"]) == ([], ["imported", "nick"])


def test_a_template_beside_the_weights_is_imported_where_the_configuration_has_none(
    frontend: Frontend, models_dir: Path
) -> None:
    """As LocalAI reads `<model>.tmpl`."""
    below = models_dir / "beside"
    (below / "sub").mkdir(parents=True)
    for name, text in {"x.gguf.tmpl": "<{{.Input}}>", "sub/y.gguf.tmpl": "[{{.Input}}]"}.items():
        (below / name).write_text(text)
    models = {
        "plain": "parameters: {model: x.gguf}\n",
        "deep": "parameters: {model: sub/y.gguf}\n",
        "own": "parameters: {model: x.gguf}\ntemplate: {chat: 'own {{.Input}}'}\n",
        "tokenizer": "parameters: {model: x.gguf}\ntemplate: {use_tokenizer_template: true}\n",
    }
    for name, text in models.items():
        (below / f"{name}.yaml").write_text(f"name: {name}\nbackend: llama-cpp\n{text}")
    answer = frontend.admin.call("POST", "/api/models/import", body={"directory": "beside"}).json()
    assert (sorted(answer["saved"]), answer["refused"]) == (sorted(models), [])

    def template(name: str) -> dict[str, Any]:
        config = load_yaml(frontend.admin.call("GET", f"/api/models/{name}").json()["config"])
        found: dict[str, Any] = config.get("template", {})
        return found

    for name, text in {"plain": "<{{.Input}}>", "deep": "[{{.Input}}]"}.items():
        assert template(name) == dict.fromkeys(("chat", "completion", "edit"), text)
    assert template("own") == {"chat": "own {{.Input}}", "completion": "<{{.Input}}>", "edit": "<{{.Input}}>"}
    assert template("tokenizer") == {"use_tokenizer_template": True}


def test_a_template_that_only_names_a_file_is_rejected(frontend: Frontend, models_dir: Path) -> None:
    config = "name: named\nbackend: llama-cpp\nparameters: {model: x.gguf}\ntemplate: {chat: my-chat}\n"
    refused = frontend.admin.call("POST", "/api/models", body={"config": config})
    assert refused.status == 400
    assert "template.chat has no placeholder" in refused.message
    assert "my-chat.tmpl" in refused.message
    assert frontend.admin.call("POST", "/api/models", body={"config": config, "force": True}).status == 201
    edited = {"config": config + "description: accepted before\n"}
    assert frontend.admin.call("PUT", "/api/models/named", body=edited).status == 200
    worse = {"config": config.replace("{chat: my-chat}", "{chat: my-chat, completion: mine}")}
    refused = frontend.admin.call("PUT", "/api/models/named", body=worse)
    assert (refused.status, "template.completion has no placeholder" in refused.message) == (400, True)
    (models_dir / "named").mkdir()
    (models_dir / "named" / "other.yaml").write_text(config.replace("name: named", "name: other"))
    answer = frontend.admin.call("POST", "/api/models/import", body={"directory": "named"}).json()
    assert (answer["saved"], "my-chat.tmpl" in answer["refused"][0]["reason"]) == ([], True)


@pytest.mark.parametrize("directory", ["/etc", "../..", "a/../../b", "~"])
def test_nothing_outside_the_models_directory_is_imported(frontend: Frontend, directory: str) -> None:
    refused = frontend.admin.call("POST", "/api/models/import", body={"directory": directory})
    assert (refused.status, "within the models directory" in refused.message) == (400, True)


def test_every_change_is_in_the_audit_log(frontend: Frontend) -> None:
    first = add(frontend, "audited")
    assert put(frontend, "audited", first["config"] + "threads: 2\n").status == 200
    assert frontend.admin.call("DELETE", "/api/models/audited").status == 200
    entries = frontend.admin.call("GET", "/api/audit?limit=200").json()
    by_model = [entry["action"] for entry in entries if entry["subject"] == "audited"]
    assert by_model == ["model.deleted", "model.changed", "model.added"]
    assert all(entry["actor"].startswith("key ") for entry in entries if entry["action"].startswith("model."))


def test_a_new_model_with_a_mistyped_backend_is_refused_unless_forced(frontend: Frontend) -> None:
    config = "name: typed\nbackend: lama-cpp\n"
    refused = frontend.admin.call("POST", "/api/models", body={"config": config})
    assert (refused.status, "unknown backend 'lama-cpp'" in refused.message) == (400, True), refused.body
    assert "did you mean llama-cpp" in refused.message
    later = frontend.admin.call("POST", "/api/models", body={"config": "name: later\nbackend: made-by-us\n"})
    assert later.status == 201, "a backend that is installed later"
    assert frontend.admin.call("POST", "/api/models", body={"config": config, "force": True}).status == 201
    for name in ("typed", "later"):
        assert frontend.admin.call("DELETE", f"/api/models/{name}").status == 200


def test_the_history_of_a_model_and_what_a_revision_changed(frontend: Frontend) -> None:
    first = add(frontend, "dated")
    assert (first["number"], first["restorable"]) == (1, None)
    changed = {"config": first["config"] + "threads: 2\n", "comment": "two are enough"}
    assert frontend.admin.call("PUT", "/api/models/dated", body=changed).json()["number"] == 2
    newest, oldest = frontend.admin.call("GET", "/api/models/dated/revisions").json()
    assert (newest["number"], newest["state"], newest["comment"]) == (2, "current", "two are enough")
    assert (oldest["number"], oldest["state"], oldest["served_at"]) == (1, "superseded", None)
    by_hash = frontend.admin.call("GET", f"/api/models/dated/revisions/{newest['revision'][:12]}/changes").json()
    assert by_hash == {
        "number": 2, "against": 1, "changes": [{"field": "threads", "before": None, "after": "2"}],
    }  # fmt: skip
    late = frontend.admin.call("POST", "/api/models/dated/rollback", headers={"If-Match": first["revision"]})
    assert late.status == 409
    back = frontend.admin.call("POST", "/api/models/dated/rollback", body={"comment": "too slow"}).json()
    assert (back["number"], back["revision"], back["config"]) == (3, first["revision"], first["config"])
    unknown = frontend.admin.call("POST", "/api/models/dated/rollback", body={"to": "77"})
    assert (unknown.status, "has no revision '77'" in unknown.message) == (404, True)
    assert frontend.admin.call("DELETE", "/api/models/dated").status == 200
    kept = frontend.admin.call("GET", "/api/models/dated/revisions").json()
    assert [one["state"] for one in kept] == ["deleted", "superseded", "superseded", "superseded"]
    assert frontend.admin.call("GET", "/api/models/never-there/revisions").status == 404
