"""The service files in deploy/ say nothing that systemd or Corral does not know."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from corral.cli.main import cli
from corral.settings.reading import environment_names
from corral.settings.roles import FrontendSettings, RoleSettings, WorkerSettings

SERVICES = Path(__file__).parents[1] / "deploy" / "systemd"
ROLES: dict[str, type[RoleSettings]] = {"frontend": FrontendSettings, "worker": WorkerSettings}
each_role = pytest.mark.parametrize("role", ROLES)


def read_service(role: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]  # as its documentation says
    unit.read_string((SERVICES / f"corral-{role}.service").read_text())
    return unit["Service"]


@each_role
def test_systemd_has_nothing_to_say_about_a_unit(role: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is missing (Debian: apt-get install systemd)")
    unit = tmp_path / f"corral-{role}.service"
    text = (SERVICES / unit.name).read_text()
    unit.write_text(text.replace("/opt/corral/bin/corral", sys.executable))
    done = subprocess.run([program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@each_role
def test_a_unit_calls_the_role_with_options_it_has(role: str) -> None:
    program, called, *words = shlex.split(read_service(role)["ExecStart"])
    assert (Path(program).name, called) == ("corral", role)
    context = click.Context(cli)
    command = cli.get_command(context, role)
    assert command is not None
    parsed = command.make_context(role, words, parent=context).params
    assert parsed["data_dir"] == f"%S/{read_service(role)['StateDirectory']}"


@each_role
def test_an_environment_file_names_settings_of_its_role(role: str) -> None:
    assert read_service(role)["EnvironmentFile"] == f"/etc/corral/{role}.env"
    named = set(re.findall(r"^#?([A-Z_]+)=", (SERVICES / f"{role}.env").read_text(), re.MULTILINE))
    known = {name for field, info in ROLES[role].model_fields.items() for name in environment_names(field, info)}
    assert named
    assert {name.removesuffix("_FILE") for name in named} <= known


def test_a_stop_of_the_workers_unit_leaves_its_backends_and_what_they_use() -> None:
    """As docs/adr/0201 has it: systemd would otherwise end the shims, or take temporary files from under them."""
    service = read_service("worker")
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    assert not {"PrivateTmp", "RuntimeDirectory", "RemoveIPC", "DynamicUser"} & set(service)
    assert "--no-keep-backends" not in service["ExecStart"]
