"""Which build a family had before a command gave it another one, kept on disk."""

from pathlib import Path

from corral.system import SystemDisk
from corral.worker.backends.applied_generations import AppliedGenerations


def open_at(path: Path) -> AppliedGenerations:
    return AppliedGenerations(path / "applied.json", SystemDisk())


async def test_a_family_remembers_the_build_that_a_command_replaced(tmp_path: Path) -> None:
    known = open_at(tmp_path)
    await known.record_concrete("echo", "cpu-echo", generation=1)
    assert known.moved_from("echo", 1) is None, "it had none before"
    await known.record_concrete("echo", "cuda-echo", former="cpu-echo", generation=2)
    again = open_at(tmp_path)
    assert (again.concrete("echo"), again.moved_from("echo", 2)) == ("cuda-echo", "cpu-echo")
    await again.record_concrete("echo", "cuda-echo", former="cuda-echo", generation=2)
    assert again.moved_from("echo", 2) == "cpu-echo", "a repeated command changes nothing"
    assert again.moved_from("echo", 1) is None
    assert again.moved_from("other", 2) is None
    await again.forget_concrete("cpu-echo")
    assert (again.concrete("echo"), again.moved_from("echo", 2)) == ("cuda-echo", None), "it was deleted"
