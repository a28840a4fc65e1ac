"""A node that is silent on one path only, its heartbeats or the message bus, does not keep its replicas from serving
elsewhere, and ends them itself."""

import pytest

from harness.herd import Herd, ask
from harness.proxy import Proxy, ProxyThread
from harness.tiny_model import Shelf
from harness.waiting import wait_until


@pytest.mark.parametrize("herd", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("path", "words"),
    [("bus", "does not answer on the message bus"), ("http", "no heartbeat arrives, but it still answers")],
)
def test_replicas_of_a_node_silent_on_one_path_are_replaced_and_end(
    herd: Herd, shelf: Shelf, lines: dict[str, ProxyThread], path: str, words: str
) -> None:
    through = f"http://127.0.0.1:{lines['http'].port}"
    flags = ("--public-url", through, "--cut-off-after", "6")
    admin = herd.start_frontend("a", *flags)
    herd.start_frontend("b", *flags)
    herd.start_worker("w1", "--join", through, "--bus", f"nats://127.0.0.1:{lines['bus'].port}")
    herd.start_worker("w2")
    assert admin.call("POST", "/api/models", body={"config": shelf.config("tiny", threads=1)}).status == 201
    wanted = {"model_name": "tiny", "min_replicas": 2, "max_replicas": 2}
    assert admin.call("POST", "/api/nodes/scheduling", body=wanted).status == 200
    herd.wait_for_ready("tiny", 2)
    herd.start_worker("w3")
    ids = {name: node["id"] for name, node in admin.nodes().items()}
    assert {row["node_id"] for row in herd.ready("tiny")} == {ids["w1"], ids["w2"]}

    lines[path].do(Proxy.refuse)
    node = admin.wait_for_status("w1", "offline", within_s=30)
    assert words in node["status_reason"]

    def restored() -> bool:
        assert ask(admin, "tiny").status == 200
        return {row["node_id"] for row in herd.ready("tiny")} == {ids["w2"], ids["w3"]}

    wait_until(restored, what="two serve again", within_s=60)
    wait_until(lambda: not herd.engines("w1"), what="the process of the silent node ends", within_s=60)

    lines[path].do(Proxy.mend)
    admin.wait_for_status("w1", "healthy", within_s=60)
    assert {row["node_id"] for row in herd.replicas("tiny")} == {ids["w2"], ids["w3"]}
    assert not herd.engines("w1"), "no more than max_replicas serve"
