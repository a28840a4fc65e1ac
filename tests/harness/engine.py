"""llama.cpp, installed once in a whole run. Most workers under test begin with it on their disk, as after a restart."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from harness.programs import clean_environment, run_cli

PARTS = ("backends", "blobs", "layers")


def installed_engine(factory: pytest.TempPathFactory) -> Path:
    """One directory for all test processes of this run."""
    own = factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "engine"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "whole").exists():
            pull_engine(home)
            (home / "whole").touch()
    return home


def pull_engine(home: Path) -> None:
    done = run_cli("artifacts", "pull", "llama-cpp", environment=clean_environment(CORRAL_DATA_DIR=str(home)))
    assert done.returncode == 0, done.stdout + done.stderr


def give_engine(home: Path, data: Path) -> None:
    """Links to the same files: nobody writes to what is installed."""
    for part in PARTS:
        shutil.copytree(home / part, data / part, symlinks=True, copy_function=os.link)
