"""`corral chat`, as a person uses it: on a terminal, in a pipe, with Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.openai_upstream import OpenAiUpstream
from harness.programs import clean_environment
from harness.waiting import wait_until

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def upstream() -> Iterator[OpenAiUpstream]:
    server = OpenAiUpstream()
    yield server
    server.stop()


@pytest.fixture
def run(upstream: OpenAiUpstream, tmp_path: object) -> Run:
    def start(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "corral", "chat", *arguments, "--url", upstream.url, "--data-dir", str(tmp_path)],
            input=given, capture_output=True, text=True, env=clean_environment(), timeout=60,
        )  # fmt: skip

    return start


class Terminal:
    """A `corral chat` on a terminal of its own."""

    def __init__(self, url: str, data_dir: object, *arguments: str) -> None:
        self.output = ""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "corral", "chat", *arguments, "--url", url, "--data-dir", str(data_dir)],
            stdin=slave, stdout=slave, stderr=slave, env=clean_environment(TERM="dumb"), start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)

    def _read(self) -> None:
        with suppress(BlockingIOError, OSError):
            self.output += os.read(self._master, 65536).decode(errors="replace")

    def expect(self, text: str, *, times: int = 1) -> None:
        def look() -> bool | None:
            self._read()
            return self.output.count(text) >= times or None

        try:
            wait_until(look, what=text, within_s=20)
        except Exception:
            raise AssertionError(f"{text!r} not {times} times in {self.output!r}") from None

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait_for_prompt(self) -> None:
        """Waits until the program reads a line; before that, it would notice an interrupt only after a line."""

        def waits() -> bool:
            lines = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            )
            is_idle = lines["State"].startswith("S") and not int(lines["SigPnd"], 16) | int(lines["ShdPnd"], 16)
            self._read()
            return is_idle and self.output.endswith("> ")

        wait_until(waits, what="it waits for a line")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._master)


@pytest.fixture
def terminals(tmp_path: object) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(url: str, *arguments: str) -> Terminal:
        opened.append(Terminal(url, tmp_path, *arguments))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def test_a_question_is_answered_once_and_nothing_else_is_printed(run: Run) -> None:
    done = run("tiny", "how", "are you")
    assert (done.returncode, done.stdout, done.stderr) == (0, "you said how are you\n", "")


def test_the_question_is_read_from_a_pipe(run: Run) -> None:
    assert run("tiny", given="from a pipe").stdout == "you said from a pipe\n"
    empty = run("tiny")
    assert (empty.returncode, "the question is empty" in empty.stderr) == (2, True)


def test_verbose_shows_tokens_speed_and_node(run: Run) -> None:
    done = run("tiny", "slow", "-v")
    assert "7 tokens in, 3 out" in done.stderr
    assert "tokens/s" in done.stderr
    assert "from worker-1" in done.stderr


def test_json_has_the_answer_and_its_facts(run: Run) -> None:
    answer = json.loads(run("tiny", "hello", "--json").stdout)
    assert (answer["answer"], answer["node"], answer["finish_reason"]) == ("you said hello", "worker-1", "stop")
    assert answer["usage"]["completion_tokens"] == 3


def test_the_system_prompt_and_the_sampling_options_are_sent(run: Run, upstream: OpenAiUpstream) -> None:
    run("tiny", "hi", "--system", "be brief", "--max-tokens", "9", "--temperature", "0.5")
    request = upstream.requests[-1][1]
    assert request["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (request["max_tokens"], request["temperature"], request["stream"]) == (9, 0.5, True)


def test_a_model_that_is_being_loaded_is_waited_for(run: Run, upstream: OpenAiUpstream) -> None:
    upstream.loading = 2
    done = run("tiny", "hi")
    assert (done.returncode, done.stdout) == (0, "you said hi\n")
    assert "loading tiny on worker-1: downloading weights, 50 %" in done.stderr
    assert upstream.held_for == ["2", "2", "2"], "the frontend answers with progress after each hold"
    upstream.loading = 2
    impatient = run("tiny", "hi", "--wait", "0")
    assert (impatient.returncode, "is being loaded" in impatient.stderr) == (1, True), (
        "exit code 3 is for an unreachable frontend"
    )


def test_an_error_shows_the_server_s_message(run: Run) -> None:
    failed = run("tiny", "fail")
    assert (failed.returncode, "the model fell over" in failed.stderr) == (1, True)
    broken = run("tiny", "break it? break")
    assert broken.returncode == 0
    broken = run("tiny", "break")
    assert (broken.returncode, "cut off" in broken.stderr) == (1, True)


def test_the_only_model_needs_no_name_and_several_are_listed(run: Run, upstream: OpenAiUpstream) -> None:
    upstream.models.append("other")
    several = run("", given="x")
    assert (several.returncode, "choose a model: tiny, other" in several.stderr) == (2, True)
    upstream.models.clear()
    none = run("", given="x")
    assert (none.returncode, "corral models install smollm2" in none.stderr) == (1, True)


def test_a_conversation_sends_its_earlier_messages(
    upstream: OpenAiUpstream, terminals: Callable[..., Terminal]
) -> None:
    chat = terminals(upstream.url)
    chat.expect("> ")
    chat.type("first\n")
    chat.expect("you said first")
    chat.expect("> ", times=2)
    chat.type("second\n")
    chat.expect("you said second")
    assert [message["content"] for message in upstream.requests[-1][1]["messages"]] == [
        "first",
        "you said first",
        "second",
    ]
    chat.type("/exit\n")
    assert chat.process.wait(60) == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(
    upstream: OpenAiUpstream, terminals: Callable[..., Terminal]
) -> None:
    chat = terminals(upstream.url, "tiny")
    chat.expect("> ")
    chat.type("hang\n")
    wait_until(lambda: upstream.open == 1, what="the question to arrive", within_s=10)
    chat.interrupt()
    chat.expect("(stopped)")
    chat.wait_for_prompt()
    chat.interrupt()
    chat.expect("Ctrl-D or /exit ends the conversation")
    chat.type("again\n")
    chat.expect("you said again")
    chat.type("fail\n")
    chat.expect("the model fell over")
    chat.expect("> ", times=5)
    chat.type("\x04")
    assert chat.process.wait(60) == 0


def test_a_held_ctrl_c_stops_the_answer_and_not_the_program(
    upstream: OpenAiUpstream, terminals: Callable[..., Terminal]
) -> None:
    chat = terminals(upstream.url, "tiny")
    chat.wait_for_prompt()
    chat.type("hang\n")
    wait_until(lambda: upstream.open, what="the question to arrive", within_s=10)
    for _ in range(30):
        chat.interrupt()
    chat.expect("(stopped)")
    chat.wait_for_prompt()

    def answers() -> bool:
        before = chat.output.count("> ")
        chat.type("again\n")  # the last interrupt may take a line with it
        chat.expect("> ", times=before + 1)
        chat.wait_for_prompt()
        return "you said again" in chat.output

    wait_until(answers, what="it answers the next question")
    hints = chat.output.count("Ctrl-D or /exit ends the conversation")
    chat.interrupt()
    chat.expect("Ctrl-D or /exit ends the conversation", times=hints + 1)
    chat.wait_for_prompt()
    assert "Traceback" not in chat.output
    chat.type("\x04")
    assert chat.process.wait(60) == 0


def test_without_any_model_the_demo_model_is_offered(
    upstream: OpenAiUpstream, terminals: Callable[..., Terminal]
) -> None:
    upstream.models.clear()
    chat = terminals(upstream.url)
    chat.expect("Install smollm2")
    chat.type("y\n")
    chat.expect("Chatting with smollm2")
    assert upstream.models == ["smollm2"]
    upstream.models.clear()
    other = terminals(upstream.url)
    other.expect("Install smollm2")
    other.type("n\n")
    assert other.process.wait(60) == 130
    assert upstream.models == []


def test_an_unknown_model_is_reported_before_the_first_question(
    upstream: OpenAiUpstream, terminals: Callable[..., Terminal]
) -> None:
    wrong = terminals(upstream.url, "tiyn")
    wrong.expect("no model 'tiyn', or this key may not use it. Did you mean tiny?")
    assert wrong.process.wait(60) == 1
    upstream.offered = ["smollm2"]
    offered = terminals(upstream.url, "smollm2")
    offered.expect("a gallery has it: corral models install smollm2")
    assert offered.process.wait(60) == 1
    assert upstream.requests == []
