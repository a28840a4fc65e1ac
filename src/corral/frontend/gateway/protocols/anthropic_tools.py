"""Tools of Anthropic's API that clients run and name only by a type, because Anthropic's models know their schemas."""

from typing import Any

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_RANGE = {"type": "array", "items": _NUMBER, "description": "The first and the last line; -1 is the end of the file."}


def _schema(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _commands(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


_FILE = {
    "path": _TEXT,
    "file_text": {**_TEXT, "description": "For `create`: the content of the file."},
    "old_str": {**_TEXT, "description": "For `str_replace`: the text to replace. It must occur once."},
    "new_str": {**_TEXT, "description": "For `str_replace`: the new text."},
    "insert_line": {**_NUMBER, "description": "For `insert`: the line after which the text goes."},
    "view_range": _RANGE,
}
_INSERT_TEXT = {"insert_text": {**_TEXT, "description": "For `insert`: the text."}}
_BASH = (
    "Runs a command in a shell that keeps its state.",
    _schema([], {"command": _TEXT, "restart": {"type": "boolean", "description": "Starts the shell again."}}),
)
_OLD_EDITOR = (
    "Views and edits text files.",
    _schema(
        ["command", "path"],
        {
            "command": _commands("view", "create", "str_replace", "insert", "undo_edit"),
            **_FILE,
            "new_str": {**_TEXT, "description": "For `str_replace` and `insert`: the new text."},
        },
    ),
)
_EDITOR = (
    "Views and edits text files.",
    _schema(
        ["command", "path"],
        {"command": _commands("view", "create", "str_replace", "insert"), **_FILE, **_INSERT_TEXT},
    ),
)
_MEMORY = (
    "Keeps notes in files below /memories.",
    _schema(
        ["command"],
        {
            "command": _commands("view", "create", "str_replace", "insert", "delete", "rename"),
            **_FILE,
            **_INSERT_TEXT,
            "old_path": {**_TEXT, "description": "For `rename`."},
            "new_path": {**_TEXT, "description": "For `rename`."},
        },
    ),
)
SCHEMAS: dict[str, tuple[str, dict[str, Any]]] = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _OLD_EDITOR,
    "text_editor_20250124": _OLD_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _MEMORY,
}
"""Description and schema by type."""
_RUN_BY_SERVERS = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset")


def is_run_by_servers(kind: str) -> bool:
    """Whether Anthropic's servers run the tool, and not the client."""
    return kind.startswith(_RUN_BY_SERVERS)
