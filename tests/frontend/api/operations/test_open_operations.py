"""The list of running operations: a short one is always current, a long one is built once for all readers."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from corral.controller.backends.progress import LiveProgress
from corral.core.backends.intents import Verb
from corral.core.backends.operations import NodeProgress, NodeProgressStatus, Operation, OperationState
from corral.core.nodes.node import NodeId
from corral.core.nodes.targets import Target
from corral.core.transfer import TransferProgress
from corral.frontend.api.operations.open_operations import LONG_NODES, OpenOperations
from corral.frontend.api.operations.view import view_operation
from corral.store.backends.operations import OperationStore
from harness.waiting import until


def operation(nodes: int, *, percentage: float = 0.0, verb: Verb = Verb.INSTALL) -> Operation:
    return Operation(
        id="op", verb=verb, backend="echo", reference="echo", node_id=None, target=Target(), generation=1,
        actor="test", cause="request", state=OperationState.RUNNING, cancel_requested=False, error="", created_at=1,
        changed_at=1, finished_at=None, dismissed_at=None,
        nodes=tuple(
            NodeProgress(
                node_id=NodeId(f"n{number}"), node_name=f"n{number}", status=NodeProgressStatus.DOWNLOADING,
                transfer=TransferProgress(percentage=percentage),
            )
            for number in range(nodes)
        ),
    )  # fmt: skip


class Rows(OperationStore):
    def __init__(self, *operations: Operation) -> None:
        self.operations = list(operations)
        self.reads = 0

    async def read_open(self) -> list[Operation]:
        self.reads += 1
        await asyncio.sleep(0)
        return self.operations


class Quiet(LiveProgress):
    def __init__(self) -> None:
        """Knows of nothing."""

    def of(self, _operation_id: str) -> Mapping[NodeId, NodeProgress]:
        return {}


async def shown(listed: OpenOperations) -> list[int]:
    return [one["progress"] for one in msgspec.json.decode(await listed.read())["operations"]]


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (Verb.INSTALL, "2 being installed"),
        (Verb.UPGRADE, "2 being upgraded"),
        (Verb.ROLLBACK, "2 being rolled back"),
        (Verb.DELETE, "2 being deleted"),
    ],
)
def test_running_work_is_described_by_its_verb(verb: Verb, said: str) -> None:
    assert view_operation(operation(2, verb=verb)).message == said


async def test_a_short_list_is_as_new_as_the_store() -> None:
    rows = Rows(operation(LONG_NODES))
    listed = OpenOperations(rows, Quiet())
    assert await shown(listed) == [0]
    rows.operations = [operation(LONG_NODES, percentage=50.0)]
    assert await shown(listed) == [50]


async def test_a_long_list_is_built_once_for_concurrent_readers() -> None:
    rows = Rows(operation(LONG_NODES + 1))
    listed = OpenOperations(rows, Quiet())
    answers = await asyncio.gather(*(listed.read() for _ in range(100)))
    assert len(set(answers)) == 1
    assert rows.reads == 1


async def test_a_long_list_that_is_read_often_is_rebuilt_in_the_background() -> None:
    rows = Rows(operation(LONG_NODES + 1))
    listed = OpenOperations(rows, Quiet())
    await listed.read()
    keeping = asyncio.create_task(listed.run())
    rows.operations = [operation(LONG_NODES + 1, percentage=50.0)]
    made_before = listed._kept
    await until(lambda: listed._kept is not made_before, "it is made again")
    assert await shown(listed) == [50]
    keeping.cancel()
