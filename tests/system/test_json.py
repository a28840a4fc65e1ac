"""Types that threads decode into."""

import subprocess
import sys

import pytest

FIRST_USE_IN_THREADS = """
import sys, threading
from msgspec import Struct
from corral.system.json import decode_json

sys.setswitchinterval(1e-7)

class Inner(Struct):
    number: int = 0
    names: list[str] = []

class Middle(Struct):
    one: Inner | None = None
    named: dict[str, Inner] = {}

class Outer(Struct):
    first: Middle
    more: list[Middle] = []

text = b'{"first": {"one": {"number": 1}, "named": {"a": {}}}, "more": [{"one": {"names": ["x"]}}]}'
together = threading.Barrier(6)

def decode():
    together.wait()
    assert decode_json(text, Outer).more[0].one.names == ["x"]

threads = [threading.Thread(target=decode) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.processes
def test_a_type_may_be_used_for_the_first_time_in_several_threads() -> None:
    """msgspec alone crashes in nine of ten such runs."""
    for _ in range(5):
        subprocess.run([sys.executable, "-c", FIRST_USE_IN_THREADS], check=True, timeout=60)
