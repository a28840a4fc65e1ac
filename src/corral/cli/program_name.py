"""The name of this program as the user types it."""

import os


def program_name() -> str:
    """`corral`, or `./corral` in a clone of the repository."""
    return os.environ.get("CORRAL_PROGRAM", "corral")


def command(words: str) -> str:
    """A command as the user types it: `nodes list` is `./corral nodes list` in a clone."""
    return f"{program_name()} {words}"


def as_called(text: str) -> str:
    """Replaces `corral ...` in a frontend's message by the command as the user types it."""
    return text.replace("`corral ", f"`{program_name()} ")
