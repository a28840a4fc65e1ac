"""When a failed operation is tried again, as `corral ops` tells it."""

from datetime import UTC, datetime

from corral.cli.client.operation import AWAY, NodePart, OperationPart
from corral.cli.commands.ops import awaited, say_retry

PAST = datetime(2020, 1, 1, tzinfo=UTC)


def failing(*names: str) -> OperationPart:
    nodes = [NodePart(node_id=f"id-{name}", node_name=name, status="error", next_attempt_at=PAST) for name in names]
    done = NodePart(node_id="id-done", node_name="done", status="success")
    return OperationPart(
        id="1", verb="install", backend="b", state="running", nodes=[*nodes, done], retrying=True, next_attempt_at=PAST
    )


def test_nothing_is_due_on_machines_that_are_away() -> None:
    assert say_retry(failing("tiny"), {"id-tiny": AWAY, "id-other": AWAY}) == "waiting for tiny (away)"


def test_one_that_is_there_is_tried() -> None:
    assert say_retry(failing("tiny", "big"), {"id-tiny": AWAY}) == "next attempt is due"
    assert say_retry(failing("tiny"), {}) == "next attempt is due"


def test_an_operation_waits_only_where_all_that_is_left_is_held() -> None:
    away, here = (NodePart(node_id=f"id-{name}", node_name=name, status="queued") for name in ("away", "here"))
    done = NodePart(node_id="id-done", node_name="done", status="success")

    def running(*nodes: NodePart) -> OperationPart:
        return OperationPart(id="1", verb="install", backend="b", state="running", nodes=list(nodes))

    assert awaited(running(done, away), {"id-away": AWAY}) == [away]
    assert awaited(running(here, away), {"id-away": AWAY}) == []
    assert awaited(running(done), {}) == []
