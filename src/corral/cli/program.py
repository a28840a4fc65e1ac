"""How this program is called by whoever reads what it prints."""

import os


def program_name() -> str:
    """`./corral` from a clone."""
    return os.environ.get("CORRAL_PROGRAM", "corral")
