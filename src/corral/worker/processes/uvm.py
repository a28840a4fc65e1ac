"""Creates the device file /dev/nvidia-uvm for CUDA. CUDA creates it with a setuid program at its first use; a confined
backend cannot run such a program, so the worker does."""

import shutil
import subprocess
from pathlib import Path

import structlog

log = structlog.get_logger()

_TOOL, _ARGUMENTS = "nvidia-modprobe", ("-u", "-c", "0")
_WITHIN_S = 30.0


def ensure_uvm(root: Path = Path("/"), tool_path: str | None = None) -> str | None:
    """Blocking. Returns the problem and its remedy, or None. The program needs root or its setuid bit."""
    if not (root / "dev/nvidiactl").exists() or (root / "dev/nvidia-uvm").exists():
        return None
    tool = shutil.which(_TOOL, path=tool_path)
    detail = "it is not installed" if tool is None else _run(tool)
    if (root / "dev/nvidia-uvm").exists():
        return None
    problem = (
        "CUDA does not work for backends: /dev/nvidia-uvm is missing. Run"
        f" `{' '.join((_TOOL, *_ARGUMENTS))}` as root after each boot ({detail})."
    )
    log.warning("worker.nvidia_uvm_missing", problem=problem)
    return problem


def _run(tool: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  the driver's own program
            [tool, *_ARGUMENTS], capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return f"the worker ran it: exit code {done.returncode}, {done.stderr.strip()[:200] or 'no output'}"
