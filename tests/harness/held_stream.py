"""A streamed answer that stands still in the middle: its engine is paused after the first words."""

import codecs
import contextlib
import http.client
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from harness.waiting import wait_until

TRIES = 10


class HeldStream:
    """While the block runs the replica is busy; `go_on` lets the answer come to its end."""

    def __init__(self, url: str, key: str, model: str, *, engine: int, max_tokens: int = 200) -> None:
        self._url, self._key, self._model, self._engine, self._max_tokens = url, key, model, engine, max_tokens
        self._paused = False
        self.text = ""
        self._seen = -1
        self.problem: Exception | None = None

    def __enter__(self) -> Self:
        for _ in range(TRIES):
            self._hold()
            assert self.problem is None
            if not self.is_whole:
                return self
            # It was too quick for us: what was on its way has arrived by now, and was all there is.
            self.go_on()
            self._thread.join(30)
        raise AssertionError(f"the engine gave its whole answer in a moment, {TRIES} times")

    def _hold(self) -> None:
        self.text = ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        os.kill(self._engine, signal.SIGSTOP)
        self._paused = True
        self._thread.start()
        wait_until(self._has_begun, what="the answer begins", within_s=30, every_s=0.02)
        wait_until(self._is_still, what="nothing more is on its way", within_s=30, every_s=0.2)

    def _is_still(self) -> bool:
        before, self._seen = self._seen, len(self.text)
        return before == self._seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        self._thread.join(60)

    def _has_begun(self) -> bool:
        """The engine gets a few milliseconds at a time: a whole answer would take it not many more."""
        if not self.text and self.problem is None:
            self._let_run()
        return bool(self.text) or self.problem is not None

    def _let_run(self) -> None:
        """On a busy machine the milliseconds go by before the engine's turn comes, so it is given until it had one."""
        enough_ns, until_s = _ran_ns(self._engine) + 500_000, time.monotonic() + 0.05
        os.kill(self._engine, signal.SIGCONT)
        time.sleep(0.002)
        while not self.text and _ran_ns(self._engine) < enough_ns and time.monotonic() < until_s:
            time.sleep(0.001)
        os.kill(self._engine, signal.SIGSTOP)

    @property
    def is_whole(self) -> bool:
        return "data: [DONE]" in self.text

    def go_on(self) -> None:
        if self._paused:
            self._paused = False
            os.kill(self._engine, signal.SIGCONT)

    def wait(self, within_s: float = 60.0) -> None:
        """Until it has ended, one way or the other."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"the answer has not ended within {within_s:g} s: {self.text[-200:]}"

    def _read(self) -> None:
        address = urlsplit(self._url)
        body = {
            "model": self._model,
            "stream": True,
            "max_tokens": self._max_tokens,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": "hello"}],
        }
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=90)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise http.client.HTTPException(f"{answer.status} {answer.read()!r}")
            decode = codecs.getincrementaldecoder("utf-8")().decode  # a read may end in the middle of a letter
            while data := answer.read1(65536):
                self.text += decode(data)
        except (OSError, http.client.HTTPException) as error:
            self.problem = error
        finally:
            connection.close()


def _ran_ns(pid: int) -> int:
    """How long its threads have had a processor."""
    ran_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            ran_ns += int((thread / "schedstat").read_text().split()[0])
    return ran_ns
