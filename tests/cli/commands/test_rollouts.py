"""`corral rollouts` against a real frontend: what it prints, how it steers, and its exit codes."""

import json
import subprocess

import pytest

from corral.core.backends.rollouts import Strategy
from frontend.conftest import nats_for_module, open_frontend
from harness.frontend import Frontend
from harness.programs import clean_environment, run_cli
from harness.seeded_rollouts import fail, seed

__all__ = ["nats_for_module", "open_frontend"]


@pytest.fixture
def environment(open_frontend: Frontend) -> dict[str, str]:
    return clean_environment(CORRAL_URL=open_frontend.url, CORRAL_API_KEY=open_frontend.admin.key)


def rollouts(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return run_cli("rollouts", *words, environment=environment)


def test_an_empty_list_says_what_starts_one(environment: dict[str, str]) -> None:
    done = rollouts(environment, "list")
    assert (done.returncode, "corral backends upgrade NAME" in done.stdout) == (0, True)
    assert json.loads(rollouts(environment, "list", "--json").stdout) == {"rollouts": [], "revisions": []}


def test_a_rollout_is_listed_shown_steered_and_watched_to_its_end(
    open_frontend: Frontend, environment: dict[str, str]
) -> None:
    key = seed(open_frontend, backend="cli")
    listed = rollouts(environment, "list").stdout
    assert "1.0 -> 2.0" in listed
    status = run_cli("status", environment=environment).stdout
    assert "Rollout of cli: wave 1 of 2: installing" in status
    assert f"rollouts show {key[:8]}" in status
    assert "wave 1 of 2: installing" in listed
    shown = rollouts(environment, "show", key[:8]).stdout
    for words in ("Wave 1: installing", "Wave 2: waiting", "no replicas", "started (test): waves: 1, 1 nodes"):
        assert words in shown, shown
    assert json.loads(rollouts(environment, "show", key, "--json").stdout)["id"] == key
    paused = rollouts(environment, "pause", key, "--reason", "lunch \x1b[31m")
    assert "Paused. cli: paused in wave 1 of 2: lunch" in paused.stdout
    assert "\x1b" not in paused.stdout, "a reason does not colour terminals"
    assert "Resumed. cli: " in rollouts(environment, "resume", key).stdout
    assert "Promoted. cli: " in rollouts(environment, "promote", key).stdout
    assert "Aborted. cli: " in rollouts(environment, "abort", key).stdout
    watched = rollouts(environment, "watch", key)
    assert watched.returncode == 1
    assert watched.stdout.splitlines()[-1].startswith("cli: aborted in wave")


def test_a_failed_version_can_be_allowed(open_frontend: Frontend, environment: dict[str, str]) -> None:
    key = seed(open_frontend, backend="bad")
    fail(open_frontend, key)
    assert rollouts(environment, "watch", key).returncode == 1
    shown = rollouts(environment, "show", key).stdout
    assert f"not offered again until `corral rollouts allow {key[:8]}`" in shown
    assert "it is too slow" in shown
    assert rollouts(environment, "allow", key[:8]).stdout.startswith("Allowed. bad: failed in wave 1")
    assert "not offered again" not in rollouts(environment, "show", key).stdout


@pytest.mark.parametrize("verb", ["show", "watch", "pause", "resume", "promote", "abort", "allow"])
def test_an_unknown_rollout_is_an_error_that_names_the_list(environment: dict[str, str], verb: str) -> None:
    done = rollouts(environment, verb, "nothing")
    assert done.returncode == 1, done.stdout
    assert "there is no rollout 'nothing'; list rollouts with `corral rollouts list`" in done.stderr


def test_steering_in_a_wrong_state_names_the_state(open_frontend: Frontend, environment: dict[str, str]) -> None:
    done = rollouts(environment, "resume", seed(open_frontend, backend="state"))
    assert (done.returncode, "is running and cannot be resumed" in done.stderr) == (1, True)
    ungated = rollouts(environment, "pause", seed(open_frontend, backend="ungated", strategy=Strategy.ALL))
    assert (ungated.returncode, "has no gates" in ungated.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--waves", "0"), "is not the size of a wave"),
        (("--waves", "10%,abc"), "'abc' is not the size of a wave"),
        (("--soak", "soon"), "--soak"),
        (("--soak", "-5s"), "soak_s: must be at least 0"),
        (("--soak", "nan"), "soak_s"),
        (("--soak", "9000d"), "soak_s"),
        (("--strategy", "some"), "--strategy"),
        (("--per-node", "both"), "--per-node"),
    ],
)
def test_bad_options_of_a_rollout_are_refused(
    environment: dict[str, str], options: tuple[str, ...], words: str
) -> None:
    done = run_cli("backends", "install", "llama-cpp", *options, environment=environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
