"""When a failed operation is retried, as `corral ops` shows it."""

from datetime import UTC, datetime

from corral.cli.client.operation import OFFLINE, NodePart, OperationPart
from corral.cli.commands.ops import awaited, describe_retry

PAST = datetime(2020, 1, 1, tzinfo=UTC)


def failing(*names: str) -> OperationPart:
    nodes = [NodePart(node_id=f"id-{name}", node_name=name, status="error", next_attempt_at=PAST) for name in names]
    done = NodePart(node_id="id-done", node_name="done", status="success")
    return OperationPart(
        id="1", verb="install", backend="b", state="running", nodes=[*nodes, done], retrying=True, next_attempt_at=PAST
    )


def test_no_retry_is_due_on_offline_nodes() -> None:
    assert describe_retry(failing("tiny"), {"id-tiny": OFFLINE, "id-other": OFFLINE}) == "waiting for tiny (offline)"


def test_a_retry_is_due_on_a_reachable_node() -> None:
    assert describe_retry(failing("tiny", "big"), {"id-tiny": OFFLINE}) == "next attempt due"
    assert describe_retry(failing("tiny"), {}) == "next attempt due"


def test_an_operation_waits_for_nodes_only_if_no_other_node_is_open() -> None:
    away, here = (NodePart(node_id=f"id-{name}", node_name=name, status="queued") for name in ("away", "here"))
    done = NodePart(node_id="id-done", node_name="done", status="success")

    def running(*nodes: NodePart) -> OperationPart:
        return OperationPart(id="1", verb="install", backend="b", state="running", nodes=list(nodes))

    assert awaited(running(done, away), {"id-away": OFFLINE}) == [away]
    assert awaited(running(here, away), {"id-away": OFFLINE}) == []
    assert awaited(running(done), {}) == []
