"""HTTP's chunked coding: what can be recognised without parsing it from the beginning."""

SIZE_LINE_MOST_BYTES = 10


def are_whole_chunks(data: bytes) -> bool:
    """Whether `data`, which begins with a chunk, consists of whole chunks in their simplest form.

    The empty chunk at the end of a message does not count, nor does a chunk with an extension."""
    at, end = 0, len(data)
    while at < end:
        line_end = data.find(b"\r\n", at, at + SIZE_LINE_MOST_BYTES)
        digits = data[at:line_end]
        try:
            size = int(digits, 16)
        except ValueError:
            return False
        if line_end < 0 or digits.lower() != b"%x" % size:
            return False
        at = line_end + size + 4
        if not size or data[at - 2 : at] != b"\r\n":
            return False
    return end > 0


def chunk_content(data: bytes) -> bytes:
    """The content of whole chunks, without their framing."""
    parts: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        line_end = data.index(b"\r\n", at)
        size = int(data[at:line_end], 16)
        parts.append(data[line_end + 2 : line_end + 2 + size])
        at = line_end + size + 4
    return parts[0] if len(parts) == 1 else b"".join(parts)
