"""How many files and connections this process may have open."""

import resource

ENOUGH = 65536
"""More would only make programs slow that close every descriptor they might have before they start another."""


def raise_descriptor_limit() -> None:
    """To what the system lets us have: many give 1,024 to begin with, which a few hundred clients use up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft
