"""Settings: their sources and precedence, and the errors about invalid ones."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from corral.artifacts.references import DOCKER_HUB
from corral.cli.main import cli
from corral.core.backends.gates import GateSettings
from corral.core.errors import InvalidInput, InvalidSetting
from corral.roles.frontend.backends import rollout_options
from corral.settings.reading import environment_names, find_ignored, find_unknown_variables, load_settings
from corral.settings.roles import FrontendSettings, RoleSettings, UpSettings, WorkerSettings
from corral.settings.values import is_loopback_host, redact_url, split_host_port
from corral.worker.backends.download_settings import artifact_settings

ROLES: tuple[type[RoleSettings], ...] = (FrontendSettings, WorkerSettings, UpSettings)


def load(
    flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> WorkerSettings:
    return load_settings(WorkerSettings, flags=flags or {}, environ=environ or {}, file=file)


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("LOCALAI_NATS_BACKEND_INSTALL_TIMEOUT", "backend_install_timeout_s"),
        ("LOCALAI_NATS_BACKEND_UPGRADE_TIMEOUT", "backend_upgrade_timeout_s"),
    ],
)
def test_localais_time_outs_of_backends_are_read_by_their_names(variable: str, field: str) -> None:
    def read(environ: dict[str, str]) -> object:
        return getattr(load_settings(FrontendSettings, flags={}, environ=environ, file=None), field)

    assert (read({}), read({variable: "5s"}), read({variable: "20m"})) == (900.0, 5.0, 1200.0)
    for wrong in ("soon", "-1s"):
        with pytest.raises(InvalidSetting, match=variable):
            read({variable: wrong})


@pytest.mark.parametrize(
    ("variable", "field", "default"),
    [("CORRAL_LOAD_NOTICE_INTERVAL", "load_notice_interval_s", None), ("CORRAL_STOP_WAIT", "stop_wait_s", 30.0)],
)
def test_how_long_requests_wait_and_what_they_are_told_meanwhile(
    variable: str, field: str, default: float | None
) -> None:
    def read(environ: dict[str, str]) -> object:
        return getattr(load_settings(FrontendSettings, flags={}, environ=environ, file=None), field)

    assert (read({}), read({variable: "5s"}), read({variable: "10m"})) == (default, 5.0, 600.0)
    for wrong in ("soon", "-1s", "0"):
        with pytest.raises(InvalidSetting, match=variable):
            read({variable: wrong})


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("CORRAL_ROLLOUT_MIN_ERRORS", "5", "min_errors", 5),
        ("CORRAL_ROLLOUT_FIRST_TOKEN_SLACK", "50ms", "first_token_slack_ms", 50.0),
        ("CORRAL_ROLLOUT_ANSWER_SLACK", "2s", "answer_slack_ms", 2000.0),
        ("CORRAL_ROLLOUT_MEMORY_SLACK", "1GiB", "memory_slack_bytes", 1 << 30),
        ("CORRAL_ROLLOUT_LOOK_BACK", "12h", "look_back_s", 43_200.0),
    ],
)
def test_what_the_gates_of_rollouts_overlook_can_be_set(variable: str, value: str, field: str, expected: Any) -> None:
    def read(environ: dict[str, str]) -> GateSettings:
        return rollout_options(load_settings(FrontendSettings, flags={}, environ=environ, file=None)).gates

    assert read({}) == GateSettings(), "the defaults are those of the gates"
    assert read({variable: value}) == replace(GateSettings(), **{field: expected})
    with pytest.raises(InvalidSetting, match=variable):
        read({variable: "many"})


def test_the_look_back_of_gates_is_no_longer_than_figures_are_kept() -> None:
    settings = load_settings(FrontendSettings, flags={}, environ={"CORRAL_ROLLOUT_LOOK_BACK": "4d"}, file=None)
    with pytest.raises(InvalidInput, match="three days"):
        rollout_options(settings)


def test_flags_override_the_environment_the_file_and_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "corral.toml"
    file.write_text('[worker]\nname = "file"\ndrain_timeout = "7s"\nhost = "file"\n')
    environ = {"CORRAL_NAME": "environment", "CORRAL_HOST": "environment"}
    settings = load({"name": "flag"}, environ, file)
    assert (settings.name, settings.host, settings.drain_timeout_s) == ("flag", "environment", 7.0)
    assert settings.max_replicas_per_model == 1


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("LOCALAI_REGISTER_TO", "http://10.0.0.2:8080/", "join", "http://10.0.0.2:8080"),
        ("LOCALAI_HEARTBEAT_INTERVAL", "15s", "heartbeat_interval_s", 15.0),
        ("LOCALAI_NODE_NAME", "worker-1", "name", "worker-1"),
        ("LOCALAI_MAX_REPLICAS_PER_MODEL", "2", "max_replicas_per_model", 2),
        ("LOCALAI_NATS_URL", "nats://a:4222", "bus", "nats://a:4222"),
        ("LOCALAI_ADVERTISE_ADDR", "gpu-1.lan:50051", "advertise", "gpu-1.lan"),
        ("LOCALAI_ADDR", "10.0.0.3:50061", "port", 50060),
        ("LOCALAI_ADDR", "10.0.0.3:50061", "advertise", "10.0.0.3"),
        ("LOCALAI_ADDR", ":50061", "advertise", None),
        ("LOCALAI_SERVE_ADDR", "0.0.0.0:50051", "port", 50050),
        ("LOCALAI_LOG_LEVEL", "warn", "log_level", "warning"),
        ("LOCALAI_LOG_LEVEL", "trace", "log_level", "debug"),
        ("LOCALAI_VRAM_BUDGET", "", "vram_budget", None),
        ("LOCALAI_BACKENDS_SYSTEM_PATH", "/opt/backends", "system_backends_dir", Path("/opt/backends")),
    ],
)
def test_localai_names_are_accepted(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(load(environ={name: value}), field) == expected


def test_corrals_own_name_overrides_localais() -> None:
    settings = load(environ={"LOCALAI_NODE_NAME": "theirs", "CORRAL_NAME": "ours"})
    assert settings.name == "ours"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CORRAL_DRAIN_TIMEOUT", "-5", "positive"),
        ("CORRAL_DRAIN_TIMEOUT", "0", "positive"),
        ("CORRAL_DRAIN_TIMEOUT", "inf", "positive"),
        ("CORRAL_DRAIN_TIMEOUT", "soon", "not a duration"),
        ("CORRAL_PORT", "80000", "65534"),
        ("CORRAL_PORT", "http", "whole number"),
        ("CORRAL_JOIN", "10.0.0.2:8080", "http://"),
        ("CORRAL_JOIN", "http://10.0.0.2:http", "not an address"),
        ("CORRAL_JOIN", "http://10.0.0.2:80800", "not an address"),
        ("CORRAL_JOIN", "http://[::1", "not an address"),
        ("CORRAL_JOIN", "http://a:80,http://b:80", "not an address"),
        ("CORRAL_BUS", "http://x", "nats://"),
        ("CORRAL_BUS", "nats://a:4222,nats://b:bus", "'nats://b:bus' is not an address"),
        ("CORRAL_TOKEN", "", "empty"),
        ("CORRAL_TOKEN", "to\nken", "line break"),
        ("CORRAL_LABELS", "fast", "tier=fast"),
        ("CORRAL_LABELS", "my room=b2", "is not a valid label key"),
        ("CORRAL_VRAM_BUDGET", "lots", "not a memory budget"),
        ("CORRAL_BACKEND_USER", "no such user", "this machine has no user"),
        ("CORRAL_LOG_LEVEL", "loud", "debug"),
        ("LOCALAI_HEARTBEAT_INTERVAL", "-1s", "positive"),
        ("LOCALAI_SERVE_ADDR", "0.0.0.0:none", "whole number"),
        ("CORRAL_TRUSTED_HOSTS", "10.0.0.0/99", "neither a host nor a network"),
        ("CORRAL_REGISTRY_MIRRORS", "quay.io", "quay.io=mirror.lan"),
        ("CORRAL_REGISTRY_MIRRORS", "quay.io=https://mirror.lan", "not a registry host"),
        ("CORRAL_REGISTRY_LOGINS", "quay.io=robot", "quay.io=robot:secret"),
        ("CORRAL_DOWNLOAD_RATE", "fast", "not a size"),
        ("CORRAL_DOWNLOAD_RATE", "1", "1024"),
        ("CORRAL_KEEP_VERSIONS", "0", "1"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_the_setting(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as caught:
        load(environ={name: value})
    assert str(caught.value).startswith(f"{name}:")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"heartbeat_interval_s": "100", "suspect_after_s": "10s"}, "suspect_after"),
        ({"suspect_after_s": "60s", "offline_after_s": "30s"}, "offline_after"),
        ({"data_dir": ""}, "--data-dir: is empty"),
        ({"listen": "127.0.0.1:0"}, "--listen: .* no fixed port"),
    ],
)
def test_values_that_contradict_each_other_stop_the_start(flags: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        load_settings(UpSettings, flags=flags, environ={})


def test_a_misspelt_table_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "corral.toml"
    file.write_text('[wroker]\nname = "x"\n')
    with pytest.raises(InvalidSetting, match=r"unknown table \[wroker\]"):
        load(file=file)


def test_a_misspelt_key_in_the_file_is_named_with_the_right_one(tmp_path: Path) -> None:
    file = tmp_path / "corral.toml"
    file.write_text('[worker]\ndrain_timout = "7s"\n')
    with pytest.raises(InvalidSetting, match="did you mean 'drain_timeout'"):
        load(file=file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        (b"not toml [", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        (b"worker = 3", "must be a table"),
    ],
)
def test_a_settings_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "corral.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidSetting, match=words) as caught:
        load(file=file)
    assert str(file) in str(caught.value)


def test_a_secret_may_come_from_a_file_and_is_never_printed(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    settings = load(environ={"CORRAL_TOKEN_FILE": str(secret)})
    assert settings.token is not None
    assert settings.token.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)


def test_the_sources_of_backends_are_set_by_settings(tmp_path: Path) -> None:
    file = tmp_path / "corral.toml"
    mirrors = '"docker.io" = ["one.lan:5000", "two.lan"], "quay.io" = "one.lan:5000"'
    file.write_text(f"[worker]\nregistry_mirrors = {{{mirrors}}}\n")
    environ = {
        "CORRAL_REGISTRY_LOGINS": "docker.io=me:a=b:c\nquay.io=robot:p",
        "CORRAL_DOWNLOAD_RATE": "20MB",
        "CORRAL_PYTHONS": "/opt/python/bin,python3.12",
    }
    settings = load({"data_dir": str(tmp_path), "trusted_hosts": "Registry.LAN,10.0.0.0/8"}, environ, file)
    assert "a=b" not in repr(settings)
    found = artifact_settings(settings, {})
    assert found.registry_mirrors == {DOCKER_HUB: ("one.lan:5000", "two.lan"), "quay.io": ("one.lan:5000",)}
    logins = {host: (login.username, login.password) for host, login in found.registry_logins.items()}
    assert logins == {DOCKER_HUB: ("me", "a=b:c"), "quay.io": ("robot", "p")}
    assert found.network.trusted_hosts == {"registry.lan", "10.0.0.0/8"}
    assert found.pypi.pythons == ("/opt/python/bin", "python3.12")
    assert (found.transfer.bandwidth_bytes_per_s, found.keep_versions) == (20_000_000, 3)
    flags = {"registry_mirrors": "quay.io=one.lan:5000,quay.io=two.lan"}
    assert load(flags).registry_mirrors == {"quay.io": ("one.lan:5000", "two.lan")}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.role)
def test_every_setting_has_a_help_text_and_a_name_of_corrals_own(role: type[RoleSettings]) -> None:
    for field, info in role.model_fields.items():
        assert info.description, f"{role.__name__}.{field} has no docstring"
        assert environment_names(field, info)[0].startswith("CORRAL_")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("0.0.0.0", 80)),
        ("80", ("127.0.0.1", 80)),
    ],
)
def test_split_host_port(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:port", "host:99999", "host:-1"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        split_host_port(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("80", "127.0.0.1:80"), (":80", "0.0.0.0:80"), ("[::1]:80", "[::1]:80"), ("a:80", "a:80")]
)
def test_one_address_is_written_in_one_way(text: str, meant: str) -> None:
    assert load_settings(UpSettings, flags={"listen": text}, environ={}).listen == meant


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.example.com", False)],
)  # fmt: skip
def test_only_loopback_counts_as_loopback(host: str, loopback: bool) -> None:
    assert is_loopback_host(host) is loopback


@pytest.mark.parametrize("who", ["user:pw@", "user:p@w@", "user@", ""])
def test_an_address_is_shown_without_its_password(who: str) -> None:
    assert redact_url(f"postgresql://{who}host/db") == "postgresql://host/db"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CORRAL_HEARTBEAT_INTERVALL", "CORRAL_HEARTBEAT_INTERVAL"),
        ("CORRAL_TOKEN_FIEL", "CORRAL_TOKEN_FILE"),
        ("CORRAL_LISTEN_ON", "CORRAL_LISTEN"),
        ("CORRAL_SOMETHING_ELSE_ENTIRELY", None),
    ],
)
def test_an_unknown_variable_is_found_with_the_most_similar_name(name: str, near: str | None) -> None:
    known = {"CORRAL_TOKEN_FILE": "x", "CORRAL_URL": "x", "CORRAL_JOIN_TOKEN_FILE": "x", "PATH": "x"}
    assert find_unknown_variables({**known, name: "x"}) == {name: near}


def test_the_join_token_has_its_own_name_and_may_be_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    for settings in (
        load(environ={"CORRAL_JOIN_TOKEN": "s3cret"}),
        load(environ={"CORRAL_JOIN_TOKEN_FILE": str(secret)}),
        load({"token_file": str(secret)}),
        load({"token_file": str(secret)}, environ={"CORRAL_TOKEN": "other"}),
    ):
        assert settings.token is not None
        assert settings.token.get_secret_value() == "s3cret"
    with pytest.raises(InvalidSetting, match=r"^--token-file: cannot read /nonexistent"):
        load({"token_file": "/nonexistent"})


def test_no_message_of_the_validator_reaches_the_user() -> None:
    wrong = {
        "CORRAL_PORT": "x",
        "CORRAL_LOG_LEVEL": "loud",
        "CORRAL_NAME": "",
        "CORRAL_MAX_REPLICAS_PER_MODEL": "0",
        "CORRAL_INSECURE_ANONYMOUS_BUS": "perhaps",
    }
    with pytest.raises(InvalidSetting) as caught:
        load(environ=wrong)
    assert set(str(caught.value).splitlines()) == {
        "CORRAL_PORT: must be a whole number",
        "CORRAL_LOG_LEVEL: must be debug, info, warning or error",
        "CORRAL_NAME: must not be empty",
        "CORRAL_MAX_REPLICAS_PER_MODEL: must be at least 1",
        "CORRAL_INSECURE_ANONYMOUS_BUS: must be true or false",
    }


SOURCE = Path(__file__).resolve().parent.parent / "src" / "corral"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
def test_every_setting_is_used(role: type[RoleSettings]) -> None:
    """A setting that nobody reads is a promise nobody keeps."""
    parts = (path for path in SOURCE.rglob("*.py") if path.name != "roles.py")
    text = "\n".join(path.read_text() for path in parts)
    read = set(re.findall(r"settings\.([a-z_0-9]+)\b", text))
    assert sorted(set(role.model_fields) - read) == []


def test_a_credential_that_would_expire_at_once_is_rejected() -> None:
    with pytest.raises(InvalidSetting, match="CORRAL_WORKER_JWT_TTL: must be at least 1"):
        load_settings(FrontendSettings, flags={}, environ={"CORRAL_WORKER_JWT_TTL": "0.5s"})


def test_downloads_without_a_digest_can_be_forbidden() -> None:
    assert not artifact_settings(load(), {}).require_digest
    assert artifact_settings(load({"require_digest": "true"}), {}).require_digest


def test_a_size_may_have_a_unit_and_the_help_shows_its_default_with_one() -> None:
    settings = load_settings(FrontendSettings, flags={"request_limit_bytes": "64MiB"}, environ={})
    assert settings.request_limit_bytes == 64 << 20
    shown = " ".join(CliRunner().invoke(cli, ["frontend", "--help"]).output.split())
    assert "for example `64MiB`. Default: 32.0 MiB. [CORRAL_REQUEST_LIMIT]" in shown


def test_a_worker_says_which_of_localais_directories_it_does_not_use() -> None:
    ignored = find_ignored({"LOCALAI_MODELS_PATH": "/m", "BACKENDS_PATH": "/b", "HOME": "/"}, Path("/srv/corral"))
    assert ignored == [
        "LOCALAI_MODELS_PATH is not used: a Corral worker keeps weights in /srv/corral",
        "BACKENDS_PATH is not used: a Corral worker keeps backends in /srv/corral",
    ]
