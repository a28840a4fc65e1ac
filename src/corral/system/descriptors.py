"""The limit of open files and connections of this process."""

import resource

ENOUGH = 65536
"""A higher limit slows down programs that close all possible descriptors before they start another program."""


def raise_descriptor_limit() -> None:
    """Raises the limit to the system's maximum: the default is often 1,024, too few for some hundred clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft
