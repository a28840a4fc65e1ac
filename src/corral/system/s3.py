"""S3: the request signature that every client uses, and a client for the bucket that frontends and workers share."""

import asyncio
import contextlib
import hashlib
import hmac
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from io import FileIO
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import structlog

from corral.core.backoff import Backoff
from corral.core.errors import Conflict, NotFound, Unavailable
from corral.system.clock import Clock
from corral.system.http_call import HttpAnswer, NoAnswer, NoConnection, open_http
from corral.system.ids import Ids

log = structlog.get_logger()

PART_BYTES = 8 << 20
MAX_PARTS = 10_000
PARTS_AT_ONCE = 4
STALL_S = 60.0
ATTEMPTS = 5
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_TRANSIENT = {408, 429, 500, 502, 503, 504}

RETRIES = Backoff(base_s=0.2, cap_s=5.0, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    endpoint: str = ""
    """Base address of an S3-compatible server; unset means Amazon's."""
    region: str = "us-east-1"
    access_key: str = ""
    """Empty means anonymous requests."""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)

    def url(self, bucket: str, key: str) -> str:
        path = quote(key, safe="/-_.~")
        if self.endpoint:
            return f"{self.endpoint.rstrip('/')}/{bucket}/{path}"
        return f"https://{bucket}.s3.{self.region}.amazonaws.com/{path}"


def sign(
    settings: S3Settings,
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    at: datetime,
    payload_sha256: str = UNSIGNED_PAYLOAD,
) -> dict[str, str]:
    """The headers with a Signature Version 4. Without keys the request stays anonymous."""
    if not settings.access_key:
        return dict(headers)
    parts = urlsplit(url)
    stamp, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    signed = {**headers, "x-amz-date": stamp, "x-amz-content-sha256": payload_sha256}
    if settings.session_token:
        signed["x-amz-security-token"] = settings.session_token
    covered = {"host": parts.netloc, **{name.lower(): value.strip() for name, value in signed.items()}}
    names = ";".join(sorted(covered))
    query = "&".join(sorted(parts.query.split("&"))) if parts.query else ""
    canonical = "\n".join(
        [
            method,
            parts.path or "/",
            query,
            *(f"{name}:{covered[name]}" for name in sorted(covered)),
            "",
            names,
            payload_sha256,
        ]
    )
    scope = f"{day}/{settings.region}/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{settings.secret_key}".encode()
    for part in (day, settings.region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    signed["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={settings.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed


def parse_xml(body: bytes) -> ElementTree.Element:
    """The root of an S3 document. Raises ValueError for anything else, and for XML with declarations."""
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise ValueError("it contains XML declarations, which S3 does not use")
    try:
        return ElementTree.fromstring(body)  # noqa: S314  declarations, the dangerous part, are rejected above
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    size: int
    etag: str
    last_modified: str


class S3Bucket:
    """One bucket at an address that an operator configured. It raises NotFound for a missing object and Unavailable for
    every other failure, after retries of transient ones. Keys are sent exactly as they are given."""

    def __init__(self, settings: S3Settings, name: str, *, clock: Clock, ids: Ids) -> None:
        self._settings = settings
        self.name = name
        self._clock, self._ids = clock, ids

    @property
    def address(self) -> str:
        return self._settings.url(self.name, "").rstrip("/")

    async def read_info(self, key: str) -> ObjectInfo:
        answer = await self._call("HEAD", key)
        length = answer.headers.get("content-length", "")
        if not length.isdigit():
            raise Unavailable(f"{self.address} reported no size for {key!r}")
        return ObjectInfo(int(length), answer.headers.get("etag", ""), answer.headers.get("last-modified", ""))

    async def read(self, key: str, info: ObjectInfo) -> AsyncGenerator[bytes, None]:
        """The content of the object as `info` describes it. A broken connection resumes where it broke."""
        offset, failures = 0, 0
        while offset < info.size:
            headers = {"Range": f"bytes={offset}-"} if offset else {}
            if info.etag:
                headers["If-Match"] = info.etag
            start, problem = offset, "the connection was closed before the object was complete"
            try:
                async with open_http(
                    "GET", self._url(key), headers=self._signed("GET", self._url(key), headers), stall_s=STALL_S
                ) as response:
                    if response.status == (206 if offset else 200):
                        while piece := await response.read():
                            offset += len(piece)
                            yield piece
                    else:
                        answer = HttpAnswer(response.status, await response.read_all(), response.headers)
                        problem = self._check(answer, key)
            except (NoConnection, NoAnswer) as error:
                problem = str(error)
            if offset < info.size:
                failures = 1 if offset > start else failures + 1
                await self._pause(failures, problem)

    async def put(self, key: str, file: FileIO, size: int, *, on_bytes: Callable[[int], None] = lambda _: None) -> None:
        """Writes the first `size` bytes of the file. The object appears when it is complete, or not at all."""
        if size <= PART_BYTES:
            data, sha256 = await asyncio.to_thread(_read_part, file, 0, size)
            await self._call("PUT", key, body=data, payload_sha256=sha256)
            on_bytes(size)
            return
        upload_id = await self._start_upload(key)
        try:
            etags = await self._put_parts(key, upload_id, file, size, on_bytes)
            await self._complete_upload(key, upload_id, etags, size)
        except BaseException:  # parts of an unfinished upload cost money until they are removed
            await self._abort_upload(key, upload_id)
            raise

    async def delete(self, key: str) -> None:
        """Deletes an object. A missing object is not an error."""
        with contextlib.suppress(NotFound):
            await self._call("DELETE", key)

    async def _start_upload(self, key: str) -> str:
        answer = await self._call("POST", key, query={"uploads": ""})
        upload_id = self._parse(answer).findtext("{*}UploadId", "")
        if not upload_id:
            raise Unavailable(f"{self.address} did not start a multipart upload for {key!r}")
        return upload_id

    async def _put_parts(
        self, key: str, upload_id: str, file: FileIO, size: int, on_bytes: Callable[[int], None]
    ) -> list[str]:
        part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
        offsets = list(range(0, size, part_bytes))
        etags = [""] * len(offsets)
        remaining = iter(enumerate(offsets))

        async def put_some(parts: Iterator[tuple[int, int]]) -> None:
            for index, offset in parts:
                data, sha256 = await asyncio.to_thread(_read_part, file, offset, min(part_bytes, size - offset))
                query = {"partNumber": str(index + 1), "uploadId": upload_id}
                answer = await self._call("PUT", key, query=query, body=data, payload_sha256=sha256)
                etags[index] = answer.headers.get("etag", "")
                on_bytes(len(data))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(PARTS_AT_ONCE):
                    tasks.create_task(put_some(remaining))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        return etags

    async def _complete_upload(self, key: str, upload_id: str, etags: list[str], size: int) -> None:
        root = ElementTree.Element("CompleteMultipartUpload")
        for number, etag in enumerate(etags, start=1):
            part = ElementTree.SubElement(root, "Part")
            ElementTree.SubElement(part, "PartNumber").text = str(number)
            ElementTree.SubElement(part, "ETag").text = etag
        body = ElementTree.tostring(root)
        try:
            answer = await self._call(
                "POST",
                key,
                query={"uploadId": upload_id},
                body=body,
                payload_sha256=hashlib.sha256(body).hexdigest(),
            )
        except NotFound:  # the reply to an earlier attempt was lost, or somebody removed the upload
            if (await self.read_info(key)).size != size:
                raise
            return
        if self._parse(answer).tag.endswith("Error"):  # S3 reports late failures with status 200
            raise Unavailable(f"{self.address} did not complete {key!r}: {_reason(answer)}")

    async def _abort_upload(self, key: str, upload_id: str) -> None:
        """Frees the parts of a failed upload. The upload's own error matters more, so a failure is only logged."""
        try:
            await self._call("DELETE", key, query={"uploadId": upload_id}, attempts=1)
        except (NotFound, Unavailable) as error:
            log.warning("s3.upload_not_aborted", bucket=self.address, key=key, error=str(error))

    async def _call(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        payload_sha256: str = hashlib.sha256(b"").hexdigest(),
        attempts: int = ATTEMPTS,
    ) -> HttpAnswer:
        """One request that may be repeated. Returns a successful response."""
        url = self._url(key) + (f"?{urlencode(sorted(query.items()), quote_via=quote)}" if query else "")
        failures = 0
        while True:
            try:
                headers = self._signed(method, url, {}, payload_sha256)
                async with open_http(method, url, body=body, headers=headers, stall_s=STALL_S) as response:
                    answer = HttpAnswer(response.status, await response.read_all(), response.headers)
            except (NoConnection, NoAnswer) as error:
                problem = str(error)
            else:
                if 200 <= answer.status < 300:
                    return answer
                problem = self._check(answer, key)
            failures += 1
            await self._pause(failures, problem, attempts=attempts)

    def _check(self, answer: HttpAnswer, key: str) -> str:
        """The text of a transient failure. Raises when trying again would not help."""
        problem = f"status {answer.status}: {_reason(answer)}"
        if answer.status in _TRANSIENT:
            return problem
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{self.address} has no object {key!r}")
        if answer.status == HTTPStatus.PRECONDITION_FAILED:
            raise Unavailable(f"{key!r} in {self.address} changed while it was read; try again")
        raise Unavailable(f"{self.address} rejected the request for {key!r}: {problem}")

    async def _pause(self, failures: int, problem: str, *, attempts: int = ATTEMPTS) -> None:
        if failures >= attempts:
            raise Unavailable(f"{self.address} failed {failures} times in a row: {problem}")
        await asyncio.sleep(RETRIES.delay_s(failures, self._ids.draw()))  # the back-off

    def _parse(self, answer: HttpAnswer) -> ElementTree.Element:
        try:
            return parse_xml(answer.body)
        except ValueError as error:
            raise Unavailable(f"{self.address} sent an invalid S3 response: {error}") from error

    def _url(self, key: str) -> str:
        return self._settings.url(self.name, key)

    def _signed(
        self, method: str, url: str, headers: Mapping[str, str], payload_sha256: str = UNSIGNED_PAYLOAD
    ) -> dict[str, str]:
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)
        return sign(self._settings, method, url, headers, at=at, payload_sha256=payload_sha256)


def _read_part(file: FileIO, offset: int, count: int) -> tuple[bytes, str]:
    """The bytes and their SHA-256, which the signature covers."""
    data = os.pread(file.fileno(), count, offset)
    if len(data) < count:
        raise Conflict(f"{file.name} became shorter while it was sent")
    return data, hashlib.sha256(data).hexdigest()


def _reason(answer: HttpAnswer) -> str:
    """The code and message of an S3 error document, or the start of any other body."""
    try:
        root = parse_xml(answer.body)
    except ValueError:
        return answer.body[:300].decode(errors="replace").strip() or "no reason given"
    texts = [root.findtext(f"{{*}}{name}", "") for name in ("Code", "Message")]
    return ": ".join(text for text in texts if text) or "no reason given"
