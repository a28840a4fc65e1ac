"""How this program is called by whoever reads what it prints."""

import os


def program_name() -> str:
    """`./corral` from a clone."""
    return os.environ.get("CORRAL_PROGRAM", "corral")


def command(words: str) -> str:
    """A command to be typed here: `nodes list` is `./corral nodes list` from a clone."""
    return f"{program_name()} {words}"


def as_called(text: str) -> str:
    """What a frontend says names commands as `corral ...`; told so that they can be typed here."""
    return text.replace("`corral ", f"`{program_name()} ")
