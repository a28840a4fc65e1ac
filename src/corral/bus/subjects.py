"""Subjects, as in LocalAI's wire contract; Corral's own are marked.

Only ids made by us become part of a subject. A token that comes from outside (a model's name) is sanitised first.
"""

from corral.core.nodes.node import NodeId

_RESERVED = str.maketrans(dict.fromkeys(".*> \t\n", "-"))


def sanitise_token(text: str) -> str:
    """Each reserved character becomes `-`, one for one; nothing else is touched."""
    return text.translate(_RESERVED)


def node_subject(node: NodeId | str, verb: str) -> str:
    """`verb` for example `backend.install`, `models.running`, `stop`."""
    return f"nodes.{sanitise_token(node)}.{verb}"


def sender_of(subject: str) -> str:
    """The node whose subject this is: only that node may publish there, whatever the message says."""
    return subject.split(".")[1] if subject.startswith("nodes.") else ""


BACKEND_INSTALL = "backend.install"
BACKEND_UPGRADE = "backend.upgrade"
BACKEND_LIST = "backend.list"
BACKEND_STOP = "backend.stop"
BACKEND_DELETE = "backend.delete"
MODEL_STOP = "model.stop"
MODEL_UNLOAD = "model.unload"
MODEL_DELETE = "model.delete"
MODELS_RUNNING = "models.running"
FILES_ENSURE = "files.ensure"
FILES_STAGE = "files.stage"
FILES_TEMP = "files.temp"
FILES_LISTDIR = "files.listdir"
STOP = "stop"
BACKEND_ROLLBACK = "corral.backend.rollback"
CANCEL = "corral.cancel"
LOGS = "corral.logs"
MODEL_FETCH = "corral.model.fetch"
"""Corral's own: the worker brings a model's weights to its disk by itself."""
REPORT_NOW = "corral.report.now"
"""Corral's own: answers with the whole table of backends and processes."""
REPORT = "corral.report"
"""Corral's own, published by the worker: the same table, on connect, on change and with each heartbeat."""


def progress_subject(node: NodeId | str, op_id: str) -> str:
    """For installs and upgrades alike; the token says `install` for both."""
    return node_subject(node, f"backend.install.{sanitise_token(op_id)}.progress")


EVERY_REPORT = f"nodes.*.{REPORT}"
EVERY_PROGRESS = "nodes.*.backend.install.*.progress"
"""What every frontend listens on."""

EVERY_STAGING = "staging.*.progress"
"""Frontend to frontends: how far a model's files are."""


def staging_subject(model: str) -> str:
    return f"staging.{sanitise_token(model)}.progress"


NODES_CHANGED = "corral.nodes.changed"
"""Corral's own, frontend to frontends: a hint that node rows changed; the store is the truth."""
ANYTHING_CHANGED = "corral.*.changed"
"""Every such hint."""


def changed_subject(kind: str) -> str:
    """The hint for one kind of things: nodes, operations, backends, models, replicas."""
    return f"corral.{sanitise_token(kind)}.changed"


def changed_kind(subject: str) -> str:
    return subject.split(".")[1]


ROUTES_CHANGED = "corral.routes.changed"
"""Corral's own, to frontends: a hint that models, replicas or nodes changed; the store is the truth."""
INFLIGHT = "corral.inflight"
"""Corral's own, frontend to frontends: its open requests for each replica. Forgotten unless repeated."""
PULSE = "corral.traffic"
"""Corral's own, frontend to frontends: what it answered lately, so that each can show the whole fleet's pulse."""

KEYS_IN_FORCE = "corral.keys.in_force"
"""Corral's own, frontend to frontends: asked by one that has lost the store, answered by those that still read it."""

WHY_REQUEST = "corral.request.explain"
"""Corral's own, frontend to frontends: answered by the one that served the request, by nobody else."""

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
