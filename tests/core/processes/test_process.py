import pytest

from corral.core.errors import InvalidInput
from corral.core.processes.process import Exit, Fill, ProcessKey, ProcessReadiness, ProcessSpec

LISTENING = ProcessReadiness(kind="listening")


def spec(*command: str | Fill, **environment: str | Fill) -> ProcessSpec:
    return ProcessSpec(
        key=ProcessKey("m#0"),
        backend="b",
        version_digest="sha256:1",
        command=command,
        readiness=LISTENING,
        environment=environment,
    )


def test_only_what_says_so_is_filled_in() -> None:
    assert Fill("{host}:{port}").text(host="::1", port=5, token="t") == "::1:5"
    assert spec("run", "/models/{port}.gguf").command[1] == "/models/{port}.gguf"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), "command is empty"),
        (("run", Fill("--key={token}")), "visible to every user"),
        (("run", "a\0b"), "NUL byte"),
    ],
)
def test_a_command_that_cannot_be_run_safely_is_refused(command: tuple[str | Fill, ...], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        spec(*command)


@pytest.mark.parametrize("path", ["health", "/a b", "/a\r\nX-Evil: 1", "/é"])
def test_a_readiness_path_cannot_carry_anything_else(path: str) -> None:
    with pytest.raises(InvalidInput):
        ProcessReadiness(kind="http", path=path)


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Exit(code=3), "exit code 3"),
        (Exit(signal=9), "killed by SIGKILL; it may have run out of memory"),
        (Exit(signal=11), "killed by SIGSEGV"),
        (Exit(signal=99), "killed by signal 99"),
        (Exit(problem="run.sh: Permission denied"), "run.sh: Permission denied"),
        (Exit(), "exit status unknown"),
    ],
)
def test_an_exit_is_described_in_words(ended: Exit, words: str) -> None:
    assert ended.describe() == words
