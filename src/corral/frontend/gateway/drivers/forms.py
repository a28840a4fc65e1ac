"""Reads `multipart/form-data`, which OpenAI clients send audio in. File contents are not decoded."""

import re
from dataclasses import dataclass

from corral.core.errors import InvalidInput

PARTS_MAX = 64
HEAD_MAX_BYTES = 4096
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,200})"?', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name="([^"\r\n]*)"', re.IGNORECASE)
_FILENAME = re.compile(rb'[;\s]filename="([^"\r\n]*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormFile:
    filename: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Form:
    fields: dict[str, list[str]]
    files: dict[str, FormFile]

    def text(self, name: str, default: str = "") -> str:
        return self.fields.get(name, [default])[0]


def read_form(body: bytes, content_type: str) -> Form:
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        raise InvalidInput("the request body must be a form (multipart/form-data)")
    form = Form({}, {})
    mark = b"--" + found[1].encode("latin-1", "replace")
    at = body.find(mark)
    for _ in range(PARTS_MAX):
        head = at + len(mark)
        end = body.find(b"\r\n" + mark, head)
        if at < 0 or body[head : head + 2] == b"--":
            return form
        if end < 0:
            raise InvalidInput("the form ends in the middle of a part")
        _read_part(form, body, head, end)
        at = end + 2
    raise InvalidInput(f"the form has more than {PARTS_MAX} parts")


def _read_part(form: Form, body: bytes, start: int, end: int) -> None:
    content = body.find(b"\r\n\r\n", start, min(end, start + HEAD_MAX_BYTES) + 2)
    name = _NAME.search(body, start, max(start, content))
    if content < 0 or name is None:
        raise InvalidInput("a part of the form has no name")
    filename = _FILENAME.search(body, start, content)
    data = body[content + 4 : end]
    key = name[1].decode("utf-8", "replace")
    if filename is not None:
        form.files[key] = FormFile(filename[1].decode("utf-8", "replace"), data)
    else:
        form.fields.setdefault(key, []).append(data.decode("utf-8", "replace"))
