"""Logs are events: a constant name, facts as fields, one line each, on standard error."""

import logging
import sys
from typing import Any

import structlog

_SECRET_NAMES = ("token", "secret", "seed", "password", "authorization", "key", "jwt")


def _hide_secrets(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A last line of defence: nothing should log a secret, and a field that is named like one is not printed."""
    for key in event:
        # By the last word: `join_token` is a secret, `tokens_per_s` and `key_id` are not.
        if key.lower().rpartition("_")[2] in _SECRET_NAMES:
            event[key] = "(hidden)"
    return event


def configure_logs(*, level: str, format: str, role: str) -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if format == "json"
        # Not the renderer's own choice of traceback, which prints every local variable: tokens among them.
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    # Libraries log through the standard module: theirs only when something is wrong.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # what it fails at reaches us as an error of the call
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # every error reaches our own callback
