"""Subjects, as in LocalAI's wire contract; Corral's own are marked.

Only ids that Corral generated become part of a subject. Other tokens, such as a model's name, are sanitised first.
"""

from corral.core.nodes.node import NodeId

_RESERVED = str.maketrans(dict.fromkeys(".*> \t\n", "-"))


def sanitise_token(text: str) -> str:
    """Replaces each reserved character by `-`."""
    return text.translate(_RESERVED)


def node_subject(node: NodeId | str, verb: str) -> str:
    """`verb` for example `backend.install`, `models.running`, `stop`."""
    return f"nodes.{sanitise_token(node)}.{verb}"


def sender_of(subject: str) -> str:
    """The node that the subject belongs to: only that node may publish there, whatever the message says."""
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
BACKEND_SMOKE_TEST = "corral.backend.smoke_test"
"""Corral's own: the worker starts the installed version once."""
CANCEL = "corral.cancel"
LOGS = "corral.logs"
MODEL_FETCH = "corral.model.fetch"
"""Corral's own: the worker downloads a model's weights."""
REPORT_NOW = "corral.report.now"
"""Corral's own: the worker replies with its `NodeReport`."""
REPORT = "corral.report"
"""Corral's own, published by the worker: its `NodeReport`, on connect, on change and with each heartbeat."""


def progress_subject(node: NodeId | str, op_id: str) -> str:
    """For installs and upgrades; the token is `install` for both."""
    return node_subject(node, f"backend.install.{sanitise_token(op_id)}.progress")


EVERY_REPORT = f"nodes.*.{REPORT}"
EVERY_PROGRESS = "nodes.*.backend.install.*.progress"
"""Every frontend subscribes to these."""

EVERY_STAGING = "staging.*.progress"
"""Frontend to frontends: progress of staging a model's files."""


def staging_subject(model: str) -> str:
    return f"staging.{sanitise_token(model)}.progress"


NODES_CHANGED = "corral.nodes.changed"
"""Corral's own, frontend to frontends: a notification that node rows changed; receivers read the store."""
ANYTHING_CHANGED = "corral.*.changed"
"""All change notifications."""


def changed_subject(kind: str) -> str:
    """The change notification of one kind: nodes, operations, backends, models or replicas."""
    return f"corral.{sanitise_token(kind)}.changed"


def changed_kind(subject: str) -> str:
    return subject.split(".")[1]


ROUTES_CHANGED = "corral.routes.changed"
"""Corral's own, to frontends: a notification that models, replicas or nodes changed; receivers read the store."""
INFLIGHT = "corral.inflight"
"""Corral's own, frontend to frontends: its open requests for each replica. Expires unless repeated."""
TRAFFIC = "corral.traffic"
"""Corral's own, frontend to frontends: its recent traffic, so that each can show the traffic of the whole fleet."""

KEYS_IN_FORCE = "corral.keys.in_force"
"""Corral's own, frontend to frontends: a request by one that cannot read the store, answered by those that can."""

KEY_USE = "corral.keys.use"
"""Corral's own, frontend to frontends: what the limited keys have used at one process."""

EXPLAIN_REQUEST = "corral.request.explain"
"""Corral's own, frontend to frontends: answered only by the frontend that served the request."""

FRONTEND_INBOX = "_INBOX.fe"
"""Replies to frontends go to `_INBOX.fe.<node>.<frontend>.<n>`: a node may publish only below its own id."""


def node_reply_space(node: NodeId | str) -> str:
    return f"{FRONTEND_INBOX}.{sanitise_token(node)}.>"


def frontend_inbox(frontend: str, subject: str) -> str:
    """The prefix of the reply address for a request on `subject`."""
    kind, _, rest = subject.partition(".")
    node = rest.partition(".")[0] if kind == "nodes" else "self"
    return f"{FRONTEND_INBOX}.{node}.{frontend}"


def node_inbox(node: NodeId | str) -> str:
    return f"_INBOX.node.{sanitise_token(node)}"
