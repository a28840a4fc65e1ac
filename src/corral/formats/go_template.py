"""Go's text templates: the part that LocalAI's prompts use.

Supported: text, trim marks, comments, fields, variables, pipelines, `if`, `else if`, `else`, `range`, `with`, `break`,
`continue`, Go's own functions and the common ones of sprig (`go_template_functions.py`). Everything else is rejected by
name when the template is parsed, not at the first request.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from corral.formats.go_template_functions import FUNCTIONS, GoFault, format_value, is_true

TEXT_MOST = 256 * 1024
STEPS_MOST = 200_000
OUTPUT_MOST = 16 << 20


class BadTemplate(ValueError):
    """A template that Go would reject, or a value that it cannot render."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class FieldOf:
    """`.A.B`, `$.A`, `$x.A` or `(pipeline).A`; an empty path is the value itself."""

    base: "Literal | FieldOf | Variable | Dot | Pipeline"
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Dot:
    pass


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: "tuple[Operand | Call, ...]"
    declares: tuple[str, ...] = ()
    assigns: bool = False


Operand = Literal | FieldOf | Variable | Dot | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class If:
    pipeline: Pipeline
    then: "tuple[Node, ...]"
    otherwise: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class With:
    pipeline: Pipeline
    then: "tuple[Node, ...]"
    otherwise: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Range:
    pipeline: Pipeline
    then: "tuple[Node, ...]"
    otherwise: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Jump:
    word: str


Node = Text | Action | If | With | Range | Jump


@dataclass(frozen=True, slots=True)
class GoTemplate:
    nodes: tuple[Node, ...]

    def render(self, data: Mapping[str, Any]) -> str:
        """Raises BadTemplate where Go would stop too: at a function with an argument of the wrong type."""
        return _Run(data).render(self.nodes)


def parse_template(text: str, *, fields: frozenset[str] | None = None) -> GoTemplate:
    """`fields`: the names of the data; another name is rejected, as Go does for a struct."""
    if len(text) > TEXT_MOST:
        raise BadTemplate(f"the template is longer than {TEXT_MOST >> 10} KiB")
    return GoTemplate(_Parser(list(_pieces(text)), fields).parse())


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    | (?P<char>'(?:[^'\\\n]|\\.)')
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<variable>\$\w*)
    | (?P<field>\.[A-Za-z_]\w*)
    | (?P<dot>\.(?![\w]))
    | (?P<word>[A-Za-z_]\w*)
    | (?P<declare>:=) | (?P<assign>=) | (?P<pipe>\|) | (?P<comma>,) | (?P<open>\() | (?P<close>\))
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    spaced: bool
    """Whether it follows a space: `.A .B` are two operands, `.A.B` is one."""


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str = ""
    tokens: tuple[_Token, ...] | None = None
    line: int = 0


def _pieces(text: str) -> Iterator[_Piece]:
    at = 0
    trim = False
    while True:
        start = text.find("{{", at)
        chunk = text[at:] if start < 0 else text[at:start]
        if trim:
            chunk = chunk.lstrip(" \t\r\n")
        left = start >= 0 and re.match(r"\{\{-[ \t\r\n]", text[start : start + 4])
        if left:
            chunk = chunk.rstrip(" \t\r\n")
        if chunk:
            yield _Piece(text=chunk)
        if start < 0:
            return
        line = text.count("\n", 0, start) + 1
        inside = start + (3 if left else 2)
        end = _action_end(text, inside, line)
        content = text[inside:end]
        trim = bool(re.search(r"[ \t\r\n]-$", content))
        content = content[:-1] if trim else content
        at = end + 2
        if not re.fullmatch(r"\s*/\*.*\*/\s*", content, re.DOTALL):
            yield _Piece(tokens=tuple(_tokens(content, line)), line=line)


def _action_end(text: str, at: int, line: int) -> int:
    """The position of the `}}` outside of strings and comments."""
    comment = re.compile(r"\s*/\*.*?\*/\s*-?(?=\}\})", re.DOTALL).match(text, at)
    if comment:
        return comment.end()
    for found in re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|\}\}').finditer(text, at):
        if found[0] == "}}":
            return found.start()
    raise BadTemplate(f"line {line}: the action {{{{ is not closed")


def _tokens(content: str, line: int) -> Iterator[_Token]:
    at = 0
    end = len(content.rstrip())
    while at < end:
        found = _TOKEN.match(content, at)
        if found is None or found.end() == at:
            raise BadTemplate(f"line {line}: cannot parse {content[at:].strip()[:40]!r}")
        kind = found.lastgroup or ""
        yield _Token(kind, found[kind], found.start(kind) > at)
        at = found.end()


_BLOCKS: Mapping[str, type[If | With | Range]] = {"if": If, "with": With, "range": Range}
_REFUSED = ("define", "template", "block")


class _Parser:
    def __init__(self, pieces: Sequence[_Piece], fields: frozenset[str] | None) -> None:
        self._pieces = pieces
        self._fields = fields
        self._at = 0
        self._tokens: list[_Token] = []
        self._line = 0
        self._loops = 0
        self._dot_is_root = True
        self._variables = ["$"]

    def parse(self) -> tuple[Node, ...]:
        nodes, ended = self._nodes()
        if ended:
            raise BadTemplate(f"line {self._line}: {ended!r} without a block")
        return nodes

    def _nodes(self) -> tuple[tuple[Node, ...], str]:
        """Up to `end` or `else`, which is left in `self._tokens`."""
        nodes: list[Node] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if piece.tokens is None:
                nodes.append(Text(piece.text))
                continue
            self._tokens, self._line = list(piece.tokens), piece.line
            word = self._tokens[0].text if self._tokens and self._tokens[0].kind == "word" else ""
            if word in ("end", "else"):
                self._tokens.pop(0)
                return tuple(nodes), word
            nodes.append(self._node(word))
        return tuple(nodes), ""

    def _node(self, word: str) -> Node:
        if word in _REFUSED:
            raise BadTemplate(
                f"line {self._line}: {word!r} is not supported in prompts; write its content into this template"
            )
        if word in ("break", "continue"):
            if not self._loops:
                raise BadTemplate(f"line {self._line}: {word!r} outside of a range")
            return Jump(word)
        if word in _BLOCKS:
            self._tokens.pop(0)
            return self._block(word)
        return Action(self._whole_pipeline())

    def _block(self, word: str) -> Node:
        known = len(self._variables)
        block = self._open_block(word)
        del self._variables[known:]
        return block

    def _open_block(self, word: str) -> Node:
        line = self._line
        pipeline = self._whole_pipeline()
        known = len(self._variables)
        outer = self._dot_is_root
        self._loops += word == "range"
        self._dot_is_root = outer and word == "if"
        then, ended = self._nodes()
        self._loops -= word == "range"
        self._dot_is_root = outer
        del self._variables[known:]
        otherwise: tuple[Node, ...] = ()
        if ended == "else":
            if self._tokens:
                following = self._tokens.pop(0).text
                if following != word or word == "range":
                    raise BadTemplate(f"line {self._line}: `else {following}` is not valid")
                otherwise = (self._block(following),)
                return _BLOCKS[word](pipeline, then, otherwise)
            otherwise, ended = self._nodes()
        if ended != "end":
            raise BadTemplate(f"line {line}: {word!r} has no `end`")
        return _BLOCKS[word](pipeline, then, otherwise)

    def _whole_pipeline(self) -> Pipeline:
        pipeline = self._pipeline()
        if self._tokens:
            raise BadTemplate(f"line {self._line}: unexpected {self._tokens[0].text!r}")
        return pipeline

    def _pipeline(self) -> Pipeline:
        declares, assigns = self._declaration()
        commands = [self._command()]
        while self._tokens and self._tokens[0].kind == "pipe":
            self._tokens.pop(0)
            command = self._command()
            if not isinstance(command, Call):
                raise BadTemplate(f"line {self._line}: only a function can follow a |")
            commands.append(command)
        return Pipeline(tuple(commands), declares, assigns)

    def _declaration(self) -> tuple[tuple[str, ...], bool]:
        kinds = [token.kind for token in self._tokens[:4]]
        if kinds[:2] in (["variable", "declare"], ["variable", "assign"]):
            name, sign = self._tokens[:2]
            del self._tokens[:2]
            if sign.kind == "assign":
                self._check_variable(name.text)
            self._variables.append(name.text)
            return (name.text,), sign.kind == "assign"
        if kinds == ["variable", "comma", "variable", "declare"]:
            names = (self._tokens[0].text, self._tokens[2].text)
            del self._tokens[:4]
            self._variables += names
            return names, False
        return (), False

    def _check_variable(self, name: str) -> None:
        if name not in self._variables:
            raise BadTemplate(f"line {self._line}: the variable {name} is not declared")

    def _command(self) -> Operand | Call:
        if self._tokens and self._tokens[0].kind == "word" and self._tokens[0].text not in _CONSTANTS:
            name = self._tokens.pop(0).text
            if name not in FUNCTIONS:
                raise BadTemplate(f"line {self._line}: the function {name!r} is not supported in prompts")
            arguments: list[Operand] = []
            while self._tokens and self._tokens[0].kind not in ("pipe", "close"):
                arguments.append(self._operand())
            return Call(name, tuple(arguments))
        operand = self._operand()
        if self._tokens and self._tokens[0].kind not in ("pipe", "close"):
            raise BadTemplate(f"line {self._line}: unexpected {self._tokens[0].text!r}")
        return operand

    def _operand(self) -> Operand:
        if not self._tokens:
            raise BadTemplate(f"line {self._line}: an operand is missing")
        token = self._tokens.pop(0)
        match token.kind:
            case "string" | "char" | "number":
                return Literal(_literal(token))
            case "word" if token.text in _CONSTANTS:
                return Literal(_CONSTANTS[token.text])
            case "word" if token.text in FUNCTIONS:
                return Pipeline((Call(token.text, ()),))
            case "dot":
                return Dot()
            case "variable":
                self._check_variable(token.text)
                return self._with_path(Variable(token.text), at_root=token.text == "$")
            case "field":
                self._tokens.insert(0, _Token("field", token.text, False))
                return self._with_path(Dot(), at_root=self._dot_is_root)
            case "open":
                inner = self._pipeline()
                if not self._tokens or self._tokens.pop(0).kind != "close":
                    raise BadTemplate(f"line {self._line}: a ( is not closed")
                return self._with_path(inner, at_root=False)
            case _:
                raise BadTemplate(f"line {self._line}: unexpected {token.text!r}")

    def _with_path(self, base: "Variable | Dot | Pipeline", *, at_root: bool) -> Operand:
        path: list[str] = []
        while self._tokens and self._tokens[0].kind == "field" and not self._tokens[0].spaced:
            path.append(self._tokens.pop(0).text[1:])
        if path and at_root and self._fields is not None and path[0] not in self._fields:
            known = ", ".join(sorted(self._fields))
            raise BadTemplate(f"line {self._line}: there is no field {path[0]!r}; the fields are {known}")
        return FieldOf(base, tuple(path)) if path else base


_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "nil": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _literal(token: _Token) -> Any:
    if token.kind == "number":
        return int(token.text) if re.fullmatch(r"[+-]?\d+", token.text) else float(token.text)
    if token.text.startswith("`"):
        return token.text[1:-1]
    text = re.sub(
        r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))",
        lambda found: _ESCAPES.get(found[4], found[0]) if found[4] else chr(int(found[1] or found[2] or found[3], 16)),
        token.text[1:-1],
    )
    return ord(text) if token.kind == "char" else text


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Run:
    """One rendering. Its output is bounded, because it depends on the request."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._scopes: list[dict[str, Any]] = [{"$": data}]
        self._out: list[str] = []
        self._size = 0
        self._steps = 0

    def render(self, nodes: tuple[Node, ...]) -> str:
        try:
            self._nodes(nodes, self._scopes[0]["$"])
        except (GoFault, RecursionError) as fault:
            raise BadTemplate(f"the template cannot be rendered: {fault}") from fault
        return "".join(self._out)

    def _nodes(self, nodes: tuple[Node, ...], dot: Any) -> None:
        for node in nodes:
            self._steps += 1
            if self._steps > STEPS_MOST or self._size > OUTPUT_MOST:
                raise BadTemplate("the rendered prompt is too large")
            self._node(node, dot)

    def _node(self, node: Node, dot: Any) -> None:
        match node:
            case Text(text):
                self._write(text)
            case Action(pipeline):
                value = self._pipeline(pipeline, dot)
                if not pipeline.declares:
                    self._write(format_value(value))
            case If(pipeline, then, otherwise):
                self._in_scope(lambda: self._nodes(then if is_true(self._pipeline(pipeline, dot)) else otherwise, dot))
            case With(pipeline, then, otherwise):
                self._in_scope(lambda: self._with(pipeline, then, otherwise, dot))
            case Range(pipeline, then, otherwise):
                self._in_scope(lambda: self._range(pipeline, then, otherwise, dot))
            case Jump(word):
                raise _Break if word == "break" else _Continue
            case _:
                assert_never(node)

    def _write(self, text: str) -> None:
        self._out.append(text)
        self._size += len(text)

    def _in_scope(self, work: Any) -> None:
        depth = len(self._scopes)
        self._scopes.append({})
        try:
            work()
        finally:
            del self._scopes[depth:]

    def _with(self, pipeline: Pipeline, then: tuple[Node, ...], otherwise: tuple[Node, ...], dot: Any) -> None:
        value = self._pipeline(pipeline, dot)
        if is_true(value):
            self._nodes(then, value)
        else:
            self._nodes(otherwise, dot)

    def _range(self, pipeline: Pipeline, then: tuple[Node, ...], otherwise: tuple[Node, ...], dot: Any) -> None:
        items = _items(self._pipeline(Pipeline(pipeline.commands), dot))
        if not items:
            self._nodes(otherwise, dot)
        for key, value in items:
            if len(pipeline.declares) == 2:
                self._scopes[-1].update(zip(pipeline.declares, (key, value), strict=True))
            elif pipeline.declares:
                self._scopes[-1][pipeline.declares[0]] = value
            try:
                self._in_scope(lambda value=value: self._nodes(then, value))
            except _Continue:
                continue
            except _Break:
                break

    def _pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        value: Any = None
        for at, command in enumerate(pipeline.commands):
            if isinstance(command, Call):
                value = self._call(command, dot, [value] if at else [])
            else:
                value = self._operand(command, dot)
        if pipeline.declares:
            self._set(pipeline.declares[0], value, assign=pipeline.assigns)
        return value

    def _set(self, name: str, value: Any, *, assign: bool) -> None:
        if not assign:
            self._scopes[-1][name] = value
            return
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return
        raise BadTemplate(f"the variable {name} is not declared")

    def _call(self, call: Call, dot: Any, piped: list[Any]) -> Any:
        if call.function in ("and", "or"):
            return self._short_circuit(call, dot, piped)
        arguments = [*(self._operand(operand, dot) for operand in call.arguments), *piped]
        try:
            return FUNCTIONS[call.function](*arguments)
        except GoFault:
            raise
        except (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError, AttributeError) as fault:
            raise GoFault(f"{call.function} has an argument of the wrong type") from fault

    def _short_circuit(self, call: Call, dot: Any, piped: list[Any]) -> Any:
        value: Any = None
        for operand in call.arguments:
            value = self._operand(operand, dot)
            if is_true(value) == (call.function == "or"):
                return value
        return piped[0] if piped else value

    def _operand(self, operand: Operand, dot: Any) -> Any:
        match operand:
            case Literal(value):
                return value
            case Dot():
                return dot
            case Variable(name):
                for scope in reversed(self._scopes):
                    if name in scope:
                        return scope[name]
                raise BadTemplate(f"the variable {name} is not declared")
            case FieldOf(base, path):
                value = self._operand(base, dot)
                for name in path:
                    if value is None:
                        raise GoFault(f"nil has no field {name}")
                    if not isinstance(value, Mapping):
                        raise GoFault(f"{format_value(value)[:40]!r} has no field {name}")
                    value = value.get(name)
                return value
            case Pipeline():
                return self._pipeline(operand, dot)
            case _:
                assert_never(operand)


def _items(value: Any) -> list[tuple[Any, Any]]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, int) and not isinstance(value, bool):
        if value > STEPS_MOST:
            raise GoFault("the range is too long")
        return [(at, at) for at in range(value)]
    raise GoFault(f"cannot range over {format_value(value)[:40]!r}")
