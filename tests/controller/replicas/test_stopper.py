"""What a worker's reply to a stop says about the process of the replica."""

import pytest

from corral.bus.messages import ModelStopReply
from corral.controller.replicas.stopper import find_stop_problem

HERE, ELSEWHERE = "127.0.0.1:50052", "127.0.0.1:50060"


def reply(*, matched: bool = True, terminated: bool = False, address: str = "", error: str = "") -> ModelStopReply:
    return ModelStopReply(
        matched=matched, freed=False, terminated=terminated, process_key="m#0", address=address, error=error
    )


@pytest.mark.parametrize(
    ("answer", "expected", "problem"),
    [
        pytest.param(reply(terminated=True, address=HERE), HERE, "", id="stopped"),
        pytest.param(reply(terminated=True, error="free failed"), HERE, "", id="stopped-without-unloading"),
        pytest.param(reply(matched=False, terminated=True), HERE, "", id="no-such-process"),
        pytest.param(reply(address=ELSEWHERE), HERE, "", id="another-process-has-the-key"),
        pytest.param(reply(error="address mismatch: ..."), HERE, "", id="as-localai-says-it"),
        pytest.param(reply(address=HERE, error="it hangs"), HERE, "it hangs", id="it-still-runs"),
        pytest.param(reply(address=ELSEWHERE, error="it hangs"), "", "it hangs", id="any-address-was-meant"),
        pytest.param(reply(address=HERE), HERE, "the node did not stop it", id="without-a-reason"),
    ],
)
def test_find_stop_problem(answer: ModelStopReply, expected: str, problem: str) -> None:
    assert find_stop_problem(answer, expected) == problem
