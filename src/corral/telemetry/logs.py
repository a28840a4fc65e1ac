"""Logs on standard error: one line for each event, with a constant name and facts as fields."""

import json
import logging
import sys
from typing import Any, TextIO, cast

import structlog

_SECRET_NAMES = ("token", "secret", "seed", "password", "authorization", "key", "jwt")


def _hide_secrets(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The last line of defence: no code should log a secret, but a field with such a name is not printed."""
    for key in event:
        # By the last word: `join_token` is a secret, `tokens_per_s` and `key_id` are not.
        if key.lower().rpartition("_")[2] in _SECRET_NAMES:
            event[key] = "(hidden)"
    return event


class _Output:
    """The output stream. A line that cannot be written (the disk is full) is counted and does not end the program; the
    count is written before the next line that can be written."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        self._stream = stream
        self._as_json = as_json
        self._lost = 0

    def write(self, text: str) -> int:
        try:
            self._stream.write((self._count() if self._lost else "") + text)
            self._stream.flush()
        except OSError:
            self._lost += 1
        else:
            self._lost = 0
        return len(text)

    def _count(self) -> str:
        """Not through the logger, which is writing this line."""
        event = {"event": "log.lines_lost", "level": "warning", "lines": self._lost}
        return "\n" + (json.dumps(event) if self._as_json else f"[warning  ] log.lines_lost lines={self._lost}") + "\n"

    def flush(self) -> None:
        """Every write is flushed already."""


def configure_logs(*, level: str, format: str, role: str) -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if format == "json"
        # Not the renderer's default traceback, which prints every local variable, including tokens.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=28, exception_formatter=structlog.dev.plain_traceback
        )
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_secrets,
    ]
    if format == "json":
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Output(sys.stderr, as_json=format == "json"))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    # Libraries log through the standard module: show only their warnings and errors.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # its failures are errors of the call
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # its errors go to our own callback
