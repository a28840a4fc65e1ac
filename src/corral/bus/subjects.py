"""Subjects, as in LocalAI's wire contract; Corral's own are marked.

Only ids made by us become part of a subject. A token that comes from outside (a model's name) is sanitised first.
"""

from corral.core.nodes import NodeId

_RESERVED = str.maketrans(dict.fromkeys(".*> \t\n", "-"))


def sanitise_token(text: str) -> str:
    """Each reserved character becomes `-`, one for one; nothing else is touched."""
    return text.translate(_RESERVED)


def node_subject(node: NodeId | str, verb: str) -> str:
    """`verb` for example `backend.install`, `models.running`, `stop`."""
    return f"nodes.{sanitise_token(node)}.{verb}"


MODELS_RUNNING = "models.running"
STOP = "stop"
PING = "corral.ping"
"""Corral's own: answers at once who is there (epoch, instance, version)."""

NODES_CHANGED = "corral.nodes.changed"
"""Corral's own, frontend to frontends: a hint that node rows changed; the store is the truth."""

FRONTEND_INBOX = "_INBOX.fe"
"""Replies to frontends go to `_INBOX.fe.<node>.<frontend>.<n>`: a node may publish below its own id only."""


def node_reply_space(node: NodeId | str) -> str:
    return f"{FRONTEND_INBOX}.{sanitise_token(node)}.>"


def frontend_inbox(frontend: str, subject: str) -> str:
    """Where the answer to a request on `subject` is to arrive."""
    kind, _, rest = subject.partition(".")
    node = rest.partition(".")[0] if kind == "nodes" else "self"
    return f"{FRONTEND_INBOX}.{node}.{frontend}"


def node_inbox(node: NodeId | str) -> str:
    return f"_INBOX.node.{sanitise_token(node)}"
