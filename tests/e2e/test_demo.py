"""`corral demo`, twice: the second time everything is on the disk, and what the first left must not be in the way."""

import re
from pathlib import Path

import psutil

from harness.programs import Program


def run_demo(directory: Path, log: Path) -> str:
    demo = Program("demo", "--data-dir", str(directory), "--no-keep", log=log)
    code = demo.wait(300)
    assert code == 0, demo.output()
    return demo.output()


def left_running(directory: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(directory) in words:
            found.append(words)
    return found


def test_the_demo_shows_everything_and_leaves_nothing_running(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    for number in (1, 2):
        said = run_demo(directory, tmp_path / f"{number}.log")
        assert "3 nodes are healthy" in said
        [homes] = re.findall(r"smollm2 runs on (\S+) and (\S+) after", said)
        assert homes[0] != homes[1]
        [(killed, rest, other)] = re.findall(
            r"\[(\S+) is killed: [^]]*\] (.+?)\n\n(\S+) continued the answer", said, re.DOTALL
        )
        assert (killed in homes, other in homes, killed != other) == (True, True, True)
        assert len(rest.split()) > 3, "the sentence went on"
        assert re.search(r"Web UI +http://127\.0\.0\.1:\d+\n", said)
        assert re.search(r"kept for the next run: \d", said)
        print(re.findall(r"First token .*", said))
        assert left_running(directory) == []
