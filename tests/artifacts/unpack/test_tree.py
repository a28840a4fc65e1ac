"""Names of archive members: the shortcut for neighbours gives what the full check gives."""

from collections.abc import Callable

import pytest

from corral.artifacts.errors import UnsafeArchive
from corral.artifacts.unpack.tree import MemberNames, Parts, member_parts

TRICKY = (
    b"a/b/one",
    b"a/b/two",
    b"a/b/..",
    b"a/b/.",
    b"a/b/",
    b"a/b/nul\0",
    b"a/b/" + b"x" * 255,
    b"a/b/" + b"x" * 256,
    b"a/b/\xff",
    b"./a/b/three",
    b"./a//b/four",
    b"a/../b/five",
    b"a/../b/six",
    b"/a/b/seven",
    b"/eight",
    b"nine",
    b"..",
    b"a/b/c/d/ten",
    b"a/b/c/eleven",
)


def outcome(parts: Callable[[bytes], Parts], name: bytes) -> Parts | str:
    try:
        return parts(name)
    except UnsafeArchive as error:
        return str(error)


@pytest.mark.parametrize("first", TRICKY)
def test_a_name_means_the_same_whatever_came_before_it(first: bytes) -> None:
    for second in TRICKY:
        names = MemberNames(depth=4)
        for name in (first, second, first):
            assert outcome(names.parts, name) == outcome(lambda name: member_parts(name, depth=4), name)
