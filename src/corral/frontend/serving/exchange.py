"""One request's life: who asks, for which model, at which replica, and the answer's bytes back to the client.

Plain calls while everything is at hand; a task only where something must be waited for: an unknown key, a cold model,
a driver. Whatever happens, it ends in `_finish`, once, which gives back the lease."""

import asyncio
from collections.abc import Coroutine
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog

from corral.core.errors import CorralError, InvalidInput
from corral.frontend.access import CLIENT_HEADER
from corral.frontend.drivers import LaneRequest
from corral.frontend.serving.answers import STATUS_LINES, Refusal, refusal_of, simple_answer
from corral.frontend.serving.driver_call import DriverCall
from corral.frontend.serving.inflight import Lease
from corral.frontend.serving.keys import NO_AUTH, LaneKey
from corral.frontend.serving.loads import LoadStatus, ModelLoading
from corral.frontend.serving.peek import peek_json, peek_multipart, rename_model, rename_model_in_form
from corral.frontend.serving.request import MODELS, PROXIED, Request
from corral.frontend.serving.targets import ServedModel, Target, Waiter
from corral.frontend.serving.usage import StreamUsage, find_usage
from corral.system.upstream import Call, Failure, Headers

if TYPE_CHECKING:
    from corral.frontend.serving.lane import Lane

log = structlog.get_logger()

# JSON answers up to this size are held until they are whole: then a replica that dies in the middle costs nothing.
HOLD_MOST_BYTES = 4 << 20
HINT_BYTES = 1024
TRIES_MOST = 8
SEEN_WITHIN_S = 5.0
_PASSED_ON = frozenset(
    {b"content-type", b"content-encoding", b"content-disposition", b"cache-control", b"retry-after", b"x-request-id"}
)
_END = b"0\r\n\r\n"


class Client(Protocol):
    """The connection the request came on."""

    def write(self, data: bytes) -> None: ...

    def done(self, *, keep: bool) -> None:
        """The answer is complete; the next request may come."""
        ...

    def cut(self) -> None:
        """The answer cannot be completed: the client must see the connection end."""
        ...

    @property
    def is_slow(self) -> bool:
        """It does not read what it was sent."""
        ...


class Exchange:
    __slots__ = (
        "_call", "_chunked", "_client", "_events", "_failed", "_failure", "_head", "_held", "_held_bytes", "_key",
        "_lane", "_lease", "_length", "_opened", "_over", "_position", "_request", "_served", "_since_s", "_status",
        "_stream", "_target", "_task", "_usage", "_waiter", "active_s",
    )  # fmt: skip

    def __init__(self, lane: "Lane", client: Client, request: Request) -> None:
        self._lane = lane
        self._client = client
        self._request = request
        self._since_s = lane.clock.monotonic_s()
        self.active_s = self._since_s
        self._key: LaneKey = NO_AUTH
        self._served: ServedModel | None = None
        self._target: Target | None = None
        self._lease: Lease | None = None
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiter: Waiter | None = None
        self._failed: tuple[Target, ...] = ()
        self._failure = ""
        self._stream = False
        self._usage: StreamUsage | None = None
        self._status = 0
        self._position = 0
        self._head = b""
        self._length: bytes | None = None
        self._held: list[bytes] | None = None
        self._held_bytes = 0
        self._opened = False
        self._chunked = False
        self._events = False
        self._over = False

    # Who asks, and what for

    def start(self) -> None:
        key = self._lane.keys.find(self._request.authorization)
        if key is not None:
            self._attempt(key)
        else:
            self._wait_for(self._ask_who())

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._lane.spawn(work)

    async def _ask_who(self) -> None:
        request = self._request
        headers = {"authorization": request.authorization.decode("latin-1")}
        if request.from_page:
            headers[CLIENT_HEADER] = "1"
        try:
            key = await self._lane.keys.ask(headers, _read_cookies(request.cookie), request.method.decode("latin-1"))
        except CorralError as error:
            self._refuse(refusal_of(error))
            return
        if key is not None:
            self._attempt(key)
        else:
            given = bool(request.authorization)
            self._refuse(
                Refusal(
                    401,
                    "this API key is not known here, or was revoked"
                    if given
                    else "an API key is needed: send `Authorization: Bearer <key>`",
                    code="invalid_api_key",
                )
            )

    def _attempt(self, key: LaneKey) -> None:
        self._key = key
        try:
            if self._request.path in PROXIED:
                self._route()
                self._place()
            else:
                self._answer_ourselves()
        except Refusal as refusal:
            self._refuse(refusal)
        except CorralError as error:
            self._refuse(refusal_of(error))

    def _answer_ourselves(self) -> None:
        path, method = self._request.path, self._request.method
        if path != MODELS and not path.startswith(MODELS + b"/"):
            raise Refusal(404, f"there is nothing at {path.decode('latin-1')}", code="unknown_url")
        if method not in (b"GET", b"HEAD"):
            raise Refusal(405, f"{method.decode()} is not possible here", code="method_not_allowed", allow="GET")
        if path == MODELS:
            names = sorted(served.name for served in self._lane.table.models() if self._key.may_use(served.name))
            answer: object = {"object": "list", "data": [_model(name) for name in names]}
        else:
            answer = _model(self._find(_unquote(path[len(MODELS) + 1 :])).name)
        self._send_simple(200, (b"content-type: application/json\r\n",), msgspec.json.encode(answer))

    def _route(self) -> None:
        request = self._request
        if request.method != b"POST":
            raise Refusal(
                405, f"{request.method.decode()} is not possible here", code="method_not_allowed", allow="POST"
            )
        is_form = request.content_type[:19].lower() == b"multipart/form-data"
        peek = peek_multipart(request.body, request.content_type) if is_form else peek_json(request.body)
        if not peek.model:
            raise Refusal(400, "the request names no `model`", code="missing_model", param="model")
        self._stream = bool(peek.stream)
        served = self._served = self._find(peek.model)
        if served.name != peek.model:
            request.body = (
                rename_model_in_form(request.body, request.content_type, served.name)
                if is_form
                else rename_model(request.body, served.name)
            )
        if not is_form:
            request.content_type = b"application/json"

    def _find(self, name: str) -> ServedModel:
        served = self._lane.table.find(name)
        if served is not None and self._key.may_use(served.name):
            return served
        near = self._lane.table.near(name, allowed=self._key.models)
        hint = f" Did you mean {' or '.join(near)}?" if near else " GET /v1/models lists those you may use."
        raise Refusal(
            404, f"there is no model {name[:200]!r}, or this key may not use it.{hint}", code="model_not_found",
            param="model",
        )  # fmt: skip

    # Where it goes

    def _hint(self) -> bytes:
        if self._request.session:
            return self._request.session
        assert self._served is not None
        return self._request.body[:HINT_BYTES] if self._served.route.policy.prefix_affinity else b""

    def _place(self) -> None:
        """At a replica, in line, or refused. The queue is not overtaken."""
        served = self._served
        assert served is not None
        lane = self._lane
        if not served.targets:
            self._wait_for(self._load(served))
            return
        if self._failed and (served.is_hopeless(self._failed) or len(self._failed) >= TRIES_MOST):
            raise self._no_replica()
        if not served.queue or self._failed:
            target = served.pick(self._failed, self._hint(), lane.clock.monotonic_s(), lane.draw)
            if target is not None:
                self._send(target)
                return
        self._queue(served)

    def _no_replica(self) -> Refusal:
        return Refusal(
            502, f"{self._failure}. No other replica of {self._served_name()!r} could take over; try again.",
            code="replica_failed", retry_after_s=2,
        )  # fmt: skip

    def _served_name(self) -> str:
        return self._served.name if self._served else ""

    def _queue(self, served: ServedModel) -> None:
        lane = self._lane
        waiting = len(served.queue)
        if waiting >= lane.limits.queue:
            raise Refusal(
                429,
                f"every replica of {served.name!r} is busy and {waiting} requests wait already; try again later",
                code="queue_full",
                retry_after_s=min(lane.limits.queue_wait_s, 5.0),
            )
        now_s = lane.clock.monotonic_s()
        deadline_s = self._since_s + lane.limits.queue_wait_s
        self._waiter = Waiter(served, self._key.id or "", self, now_s=now_s, deadline_s=deadline_s)
        self._position = self._position or self._waiter.position

    def on_turn(self) -> None:
        """Taken out of the queue: there is room somewhere."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and self._served is not None:
            self._lane.meters.waited.child(self._served.name).observe(self._lane.clock.monotonic_s() - waiter.since_s)
        self._again()

    def on_waited_too_long(self) -> None:
        self._waiter = None
        self._refuse(
            Refusal(
                503,
                f"every replica of {self._served_name()!r} stayed busy for {self._lane.limits.queue_wait_s:g} s;"
                f" this request began as number {self._position} in line",
                code="queue_wait_exceeded",
                retry_after_s=5,
            )
        )

    def _again(self) -> None:
        if self._over:
            return
        try:
            self._place()
        except Refusal as refusal:
            self._refuse(refusal)

    async def _load(self, served: ServedModel) -> None:
        lane = self._lane
        try:
            await lane.loads.ensure(served.name, within_s=lane.limits.load_wait_s)
            lane.table.poke()
            async with asyncio.timeout(SEEN_WITHIN_S):
                while not served.targets:
                    await lane.table.wait_for_change()
        except TimeoutError:
            loading = LoadStatus(model=served.name, state="loading")
            message = f"{served.name!r} was loaded, but no replica can be used yet; try again"
            self._refuse(refusal_of(ModelLoading(message, loading=loading, retry_after_s=5)))
        except CorralError as error:
            self._refuse(refusal_of(error))
        else:
            self._again()

    def _send(self, target: Target) -> None:
        lane, request = self._lane, self._request
        self._target = target
        self._lease = lane.inflight.begin(target)
        if target.link is None:
            self._call_driver(target)
            return
        self._call = target.link.send(
            b"".join(
                (
                    b"POST ",
                    request.path,
                    b" HTTP/1.1\r\n",
                    target.head,
                    request.forwarded,
                    b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n" % (request.content_type, len(request.body)),
                    request.body,
                )
            ),
            self,
        )

    def _call_driver(self, target: Target) -> None:
        assert self._served is not None
        request, protocol = self._request, target.replica.protocol
        driver = self._lane.drivers.get(protocol)
        if driver is None:
            self.on_failure_text(f"no driver for the protocol {protocol!r} is built into this frontend")
            return
        wanted = LaneRequest(
            path=request.path.decode("latin-1"),
            model=self._served.name,
            route=self._served.route,
            stream=self._stream,
            content_type=request.content_type.decode("latin-1"),
            body=request.body,
        )
        self._call = DriverCall(self, self._lane.spawn, driver, wanted, target.replica)

    # What comes back

    def on_head(self, status: int, headers: Headers) -> None:
        target = self._target
        assert target is not None
        now_s = self._lane.clock.monotonic_s()
        self.active_s = now_s
        if status in (401, 403) and target.link is not None:
            # Not for the client: the process at this address does not know our token, so it is not the replica.
            self._give_up_call("the process at its address is another one (it refused the replica's token)")
            return
        if status in (502, 503) and self._has_alternative(target):
            self._give_up_call(f"it answered {status}")
            return
        target.note_success()
        target.meters.first_byte.observe(now_s - self._since_s)
        self._status = status
        self._length = None
        kept = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        content_type = b""
        for name, value in headers:
            if name in _PASSED_ON:
                kept.append(b"%b: %b\r\n" % (name, value))
                if name == b"content-type":
                    content_type = value
            elif name == b"content-length":
                self._length = value
        kept.append(target.node_head)
        kept.append(self._lane.date_line)
        if self._position:
            kept.append(b"x-corral-queue-position: %d\r\n" % self._position)
        self._head = b"".join(kept)
        self._events = content_type.startswith(b"text/event-stream")
        if content_type.startswith(b"application/json"):
            self._held = []
            self._held_bytes = 0
        else:
            self._open()

    def _has_alternative(self, target: Target) -> bool:
        assert self._served is not None
        failed = (*self._failed, target)
        return not self._served.is_hopeless(failed)

    def _give_up_call(self, text: str) -> None:
        if self._call is not None:
            self._call.cancel()
        self.on_failure_text(text)

    def _open(self) -> None:
        """From here on bytes have reached the client: no other replica can take over."""
        self._opened = True
        if self._length is not None:
            framing = b"content-length: %b\r\n" % self._length
        elif self._request.http11:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self._request.keep_alive = False
            framing = b""
        closing = b"\r\n" if self._request.keep_alive else b"connection: close\r\n\r\n"
        self._client.write(b"".join((self._head, framing, closing)))
        if self._events:
            self._usage = StreamUsage()

    def on_data(self, data: bytes, last: bool) -> None:
        held = self._held
        if held is not None:
            self._hold(held, data, last)
            return
        self.active_s = self._lane.clock.monotonic_s()
        if data:
            if self._usage is not None:
                self._usage.see(data)
            if self._chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
        if last:
            self._client.write(data + _END if self._chunked else data)
            self._complete(self._usage.result() if self._usage is not None else None)
        elif data:
            self._client.write(data)
            if self._client.is_slow and self._call is not None:
                self._call.pause()

    def _hold(self, held: list[bytes], data: bytes, last: bool) -> None:
        if not last:
            held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HOLD_MOST_BYTES:
                self._held = None
                self._open()
                self.on_data(b"".join(held), False)
            return
        if held:
            held.append(data)
            data = b"".join(held)
        self._held = None
        closing = b"\r\n\r\n" if self._request.keep_alive else b"\r\nconnection: close\r\n\r\n"
        self._client.write(b"%bcontent-length: %d%b%b" % (self._head, len(data), closing, data))
        self._complete(find_usage(data) if self._status < 400 else None)

    def on_failure(self, failure: Failure) -> None:
        self.on_failure_text(failure.text)

    def on_failure_text(self, text: str) -> None:
        target, lane = self._target, self._lane
        assert target is not None
        target.note_failure(lane.clock.monotonic_s())
        target.meters.retries.value += 1
        self._failure = f"the replica on node {target.replica.node_name!r} failed: {text}"
        log.info("replica.failed_request", replica=target.replica.id, model=self._served_name(), error=text)
        self._call = None
        self._held = None
        self._failed = (*self._failed, target)
        self._release()
        lane.table.poke()
        if self._opened:
            self._break(Refusal(502, f"{self._failure}. The answer is incomplete.", code="replica_failed"))
        else:
            self._again()

    def _break(self, refusal: Refusal) -> None:
        """After the first byte: a stream of events ends with an error event, anything else with the connection."""
        self._lane.meters.broken.child(self._served_name()).value += 1
        if self._events and self._length is None:
            event = refusal.event()
            if self._chunked:
                self._client.write(b"%x\r\n%b\r\n%b" % (len(event), event, _END))
            else:
                self._client.write(event)
            self._finish()
            self._client.done(keep=self._request.keep_alive)
        else:
            self._finish()
            self._client.cut()

    # How it ends

    def _complete(self, tokens: tuple[int, int] | None) -> None:
        target = self._target
        assert target is not None
        if isinstance(self._call, DriverCall):
            tokens = self._call.tokens or tokens
        meters = target.meters
        meters.count_status(self._status)
        meters.latency.observe(self._lane.clock.monotonic_s() - self._since_s)
        tokens_in, tokens_out = tokens or (0, 0)
        meters.tokens_in.value += tokens_in
        meters.tokens_out.value += tokens_out
        self._lane.usage.count(
            key_id=self._key.id,
            model=self._served_name(),
            node_id=target.replica.node_id,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )
        self._call = None
        self._finish()
        self._client.done(keep=self._request.keep_alive)

    def _refuse(self, refusal: Refusal) -> None:
        if self._over:
            return
        if self._opened:
            self._break(refusal)
            return
        self._lane.meters.refusals.child(str(refusal.status), refusal.code or "").value += 1
        headers = [*refusal.headers(), self._lane.date_line]
        self._send_simple(refusal.status, headers, refusal.body())

    def _send_simple(self, status: int, headers: "list[bytes] | tuple[bytes, ...]", body: bytes) -> None:
        self._client.write(
            simple_answer(
                status, headers, b"" if self._request.method == b"HEAD" else body, close=not self._request.keep_alive
            )
        )
        self._finish()
        self._client.done(keep=self._request.keep_alive)

    def cancel(self) -> None:
        """The client is gone: the replica learns it at once."""
        if self._over:
            return
        if self._served is not None:
            self._lane.meters.gone.child(self._served.name).value += 1
        self._finish()

    def stop(self, refusal: Refusal) -> None:
        """We end it: the frontend stops, or the replica is silent for too long."""
        if self._over:
            return
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        self._refuse(refusal)

    def resume(self) -> None:
        """The client reads again."""
        if self._call is not None:
            self._call.resume()

    @property
    def awaits_replica(self) -> bool:
        return self._call is not None

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _finish(self) -> None:
        self._over = True
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.leave()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._release()


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "corral"}


def _unquote(path: bytes) -> str:
    from urllib.parse import unquote_to_bytes

    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidInput("the name of the model is not UTF-8") from None


def _read_cookies(header: bytes) -> dict[str, str]:
    if not header:
        return {}
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header.decode("latin-1")).items()}
    except CookieError:
        return {}
