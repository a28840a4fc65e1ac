"""YAML as LocalAI's galleries and model configurations use it, and no more than that.

Differences from plain PyYAML: `yes`, `no`, `on` and `off` are words (YAML 1.2, as Go reads them); the escape `\\'`,
which YAML forbids and two of LocalAI's files contain, is accepted; repeated keys, tags that build objects, deep nesting
and documents that grow out of proportion through aliases are refused.
"""

import re
from typing import Any

import yaml

from corral.core.errors import InvalidInput

Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TEXT_BYTES = 64 << 20
NODES = 4_000_000
DEPTH = 64
ESCAPE_REPAIRS = 200
MERGE_TAG = "tag:yaml.org,2002:merge"
_BOOLEANS = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")


class BadYaml(InvalidInput):
    code = "bad_yaml"


class StrictLoader(Base):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  PyYAML's own shape

    def flatten_mapping(self, node: Any) -> None:
        """Keys are judged as they were written, before merging adds what other entries lend."""
        if not hasattr(self, "_judged"):
            self._judged: set[int] = set()
        if id(node) not in self._judged:
            self._judged.add(id(node))
            _refuse_repeated_keys(node)
        super().flatten_mapping(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise BadYaml("The document has a value of another type where a mapping is required.")
        self.flatten_mapping(node)
        return {
            self.construct_object(key, deep=True): self.construct_object(value, deep=True) for key, value in node.value
        }

    def construct_yaml_map(self, node: Any) -> dict[Any, Any]:
        return self.construct_mapping(node)

    def construct_yaml_seq(self, node: Any) -> list[Any]:
        return [self.construct_object(child, deep=True) for child in node.value]


def _refuse_repeated_keys(node: Any) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag == MERGE_TAG:
            continue
        if not isinstance(key, yaml.ScalarNode):
            raise BadYaml(f"Line {key.start_mark.line + 1}: a key is not a plain value.")
        if key.value in seen:
            raise BadYaml(f"Line {key.start_mark.line + 1}: the key {key.value[:80]!r} is repeated.")
        seen.add(key.value)


StrictLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
    ]
    for first, resolvers in Base.yaml_implicit_resolvers.items()
}
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEANS, list("tTfF"))
StrictLoader.add_constructor("tag:yaml.org,2002:map", StrictLoader.construct_yaml_map)
StrictLoader.add_constructor("tag:yaml.org,2002:seq", StrictLoader.construct_yaml_seq)


def load_yaml(content: bytes | str) -> Any:
    """The document as plain values. Raises BadYaml for anything malformed or hostile."""
    text = content if isinstance(content, str) else _decoded(content)
    if len(text) > TEXT_BYTES:
        raise BadYaml(f"The document has more than {TEXT_BYTES} characters.")
    text = _with_size_checked(text)
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506  the loader above builds plain values only
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadYaml(f"The document cannot be read: {_first_line(error)}.") from error


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadYaml(f"The document is not UTF-8: {error.reason} at byte {error.start}.") from error


def _first_line(error: BaseException) -> str:
    """Where, as an editor counts, and what. PyYAML's own words name a file that a text does not have."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return " ".join(str(error).replace('in "<unicode string>", ', "").split())[:300]
    said = ", ".join(" ".join(part.split()) for part in (error.context, error.problem) if part)
    return f"line {mark.line + 1}, column {mark.column + 1}: {said}"[:300]


def _with_size_checked(text: str) -> str:
    """The text with forbidden escapes mended, once its events are found to be neither too many nor too deep."""
    for _ in range(ESCAPE_REPAIRS):
        try:
            _measure(text)
            return text
        except yaml.scanner.ScannerError as error:
            text = _completed(text, error)
        except yaml.YAMLError as error:
            raise BadYaml(f"The document cannot be read: {_first_line(error)}.") from error
    raise BadYaml("The document contains too many escapes that YAML forbids.")


def _completed(text: str, error: yaml.scanner.ScannerError) -> str:
    mark = error.problem_mark
    at = -1 if mark is None else _offset(text, mark.line, mark.column)
    for start in (at - 1, at):
        if start >= 0 and text[start : start + 2] == "\\'":
            return text[:start] + text[start + 1 :]
    raise BadYaml(f"The document cannot be read: {_first_line(error)}.") from error


def _offset(text: str, line: int, column: int) -> int:
    at = 0
    for _ in range(line):
        at = text.find("\n", at) + 1
        if at == 0:
            return -1
    return at + column


def _measure(text: str) -> None:
    """Walks the events only. An alias counts as all that its anchor holds, which is what expanding it would cost."""
    sizes: dict[str, int] = {}
    open_anchors: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Base):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            open_anchors.append((event.anchor, total))
            total += 1
            if len(open_anchors) > DEPTH:
                raise BadYaml(f"The document is nested more than {DEPTH} deep.")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            anchor, before = open_anchors.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
        if total > NODES:
            raise BadYaml(f"The document expands to more than {NODES} values.")


def dump_yaml(value: Any) -> str:
    """For people to read and edit: keys in their own order, long texts as blocks."""
    return yaml.dump(value, Dumper=_BlockDumper, sort_keys=False, allow_unicode=True, width=120)


class _BlockDumper(yaml.SafeDumper):
    pass


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _represent_text)
