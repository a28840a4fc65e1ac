"""One request's life: who asks, for which model, at which replica, and the answer's bytes back to the client.

Plain calls while everything is at hand; a task only where something must be waited for: an unknown key, a cold model,
a driver. Whatever happens, it ends in `_finish`, once, which gives back the lease.

The warm path is `start`, `_send` and `on_answer`; it is written for speed, everything beside it for reading."""

import asyncio
from collections.abc import Coroutine, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
import structlog

from corral.core.errors import CorralError, InvalidInput
from corral.frontend.access import CLIENT_HEADER
from corral.frontend.drivers import LaneRequest
from corral.frontend.serving.answers import STATUS_LINES, Refusal, refusal_of, simple_answer
from corral.frontend.serving.driver_call import DriverCall
from corral.frontend.serving.endpoints import FORWARDED, MODELS, PROXIED, SESSION_HEADERS, SESSION_MOST_BYTES
from corral.frontend.serving.keys import NO_AUTH, LaneKey
from corral.frontend.serving.loads import LoadStatus, ModelLoading
from corral.frontend.serving.notes import Note, Story
from corral.frontend.serving.peek import peek_json, peek_multipart, rename_model, rename_model_in_form
from corral.frontend.serving.targets import Pick, ServedModel, Target, Waiter
from corral.frontend.serving.usage import StreamUsage, cut_usage
from corral.system.upstream import Call, Failure, Headers

if TYPE_CHECKING:
    from corral.frontend.serving.lane import Lane

log = structlog.get_logger()

# JSON answers up to this size are held until they are whole: then a replica that dies in the middle costs nothing.
HOLD_MOST_BYTES = 4 << 20
HINT_BYTES = 1024
TRIES_MOST = 8
LOAD_WAIT_HEADER = b"x-corral-load-wait"
"""For how many seconds to hold a request while its model is being loaded."""
LOAD_WAIT_MOST_DIGITS = 6
SEEN_WITHIN_S = 5.0
_PASSED_ON = frozenset({b"content-encoding", b"content-disposition", b"cache-control", b"retry-after"})
_END = b"0\r\n\r\n"
_CLIENT = CLIENT_HEADER.encode()
_NO_HINT = (b"", "")


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

    def address(self) -> str: ...


class Exchange:
    # Most requests need few of these: as defaults of the class they cost nothing.
    _key: LaneKey = NO_AUTH
    _served: ServedModel | None = None
    _target: Target | None = None
    _pick: Pick | None = None
    _story: Story | None = None
    _leased = False
    _call: Call | None = None
    _task: asyncio.Task[None] | None = None
    _waiter: Waiter | None = None
    _failed: tuple[Target, ...] = ()
    _failure = ""
    _stream = False
    _usage: StreamUsage | None = None
    _status = 0
    _position = 0
    _queued_since_s = 0.0
    _waited_for_load = False
    _first_s = 0.0
    _head = b""
    _length: bytes | None = None
    _held: list[bytes] | None = None
    _held_bytes = 0
    _opened = False
    _chunked = False
    _events = False
    _over = False
    has_moved = False
    """Something came since `active_s` was looked at."""

    def __init__(
        self,
        lane: "Lane",
        client: Client,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        http11: bool,
        keep_alive: bool,
    ) -> None:
        """Names of headers in lower case."""
        self._lane = lane
        self._client = client
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.http11 = http11
        self.keep_alive = keep_alive
        self._content_type = headers.get(b"content-type", b"")
        self._number = lane.next_number()
        self._since_s = self.active_s = lane.now_s()

    # Who asks, and what for

    def start(self) -> None:
        key = self._lane.keys.find(self.headers.get(b"authorization", b""))
        if key is not None:
            self._attempt(key)
        else:
            self._wait_for(self._ask_who())

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._lane.spawn(work)

    async def _ask_who(self) -> None:
        authorization = self.headers.get(b"authorization", b"")
        headers = {"authorization": authorization.decode("latin-1")}
        if _CLIENT in self.headers:
            headers[CLIENT_HEADER] = "1"
        cookies = _read_cookies(self.headers.get(b"cookie", b""))
        try:
            method = self.method.decode("latin-1")
            key = await self._lane.keys.ask(headers, cookies, method, self._client.address())
        except CorralError as error:
            self._refuse(refusal_of(error))
            return
        if key is not None:
            self._attempt(key)
        elif authorization:
            self._refuse(Refusal(401, "this API key is not known here, or was revoked", code="invalid_api_key"))
        else:
            message = "an API key is needed: send `Authorization: Bearer <key>`"
            self._refuse(Refusal(401, message, code="invalid_api_key"))

    def _attempt(self, key: LaneKey) -> None:
        self._key = key
        try:
            if self.path not in PROXIED:
                self._answer_ourselves()
                return
            if self.method != b"POST":
                raise self._wrong_method("POST")
            is_form = self._content_type.startswith(b"multipart/")
            peek = peek_multipart(self.body, self._content_type) if is_form else peek_json(self.body)
            name = peek.model
            served = self._lane.table.by_name.get(name)
            if served is None or (key.models is not None and served.name not in key.models):
                raise self._unknown(name)
            self._served = served
            self._stream = peek.stream is True
            if served.name != name:
                self._rename(served.name, is_form=is_form)
            if not is_form:
                self._content_type = b"application/json"
            self._place(served)
        except Refusal as refusal:
            self._refuse(refusal)
        except CorralError as error:
            self._refuse(refusal_of(error))

    def _rename(self, model: str, *, is_form: bool) -> None:
        self.body = (
            rename_model_in_form(self.body, self._content_type, model) if is_form else rename_model(self.body, model)
        )

    def _wrong_method(self, right: str) -> Refusal:
        return Refusal(
            405, f"{self.method.decode('latin-1')} is not possible here", code="method_not_allowed", allow=right
        )

    def _unknown(self, name: str) -> Refusal:
        if not name:
            return Refusal(400, "the request names no `model`", code="missing_model", param="model")
        near = self._lane.table.near(name, allowed=self._key.models)
        hint = f" Did you mean {' or '.join(near)}?" if near else " GET /v1/models lists those you may use."
        message = f"there is no model {name[:200]!r}, or this key may not use it.{hint}"
        return Refusal(404, message, code="model_not_found", param="model")

    def _answer_ourselves(self) -> None:
        path = self.path
        if path != MODELS and not path.startswith(MODELS + b"/"):
            raise Refusal(404, f"there is nothing at {path.decode('latin-1')}", code="unknown_url")
        if self.method not in (b"GET", b"HEAD"):
            raise self._wrong_method("GET")
        if path == MODELS:
            usable = [served for served in self._lane.table.models() if self._key.may_use(served.name)]
            usable.sort(key=lambda served: served.name)
            answer: object = {"object": "list", "data": [_model(served) for served in usable]}
        else:
            name = _unquote(path[len(MODELS) + 1 :])
            served = self._lane.table.find(name)
            if served is None or not self._key.may_use(served.name):
                raise self._unknown(name)
            answer = _model(served)
        self._send_simple(200, (b"content-type: application/json\r\n",), msgspec.json.encode(answer))

    # Where it goes

    def _hint(self, served: ServedModel) -> tuple[bytes, str]:
        """What requests that belong together have in common, and what that is."""
        for name in SESSION_HEADERS:
            if name in self.headers:
                return self.headers[name][:SESSION_MOST_BYTES], "session"
        return (self.body[:HINT_BYTES], "prefix") if served.route.policy.prefix_affinity else _NO_HINT

    def _place(self, served: ServedModel, *, in_turn: bool = False) -> None:
        """At a replica, in line, or refused. The queue is not overtaken."""
        if not served.targets:
            if served.waiting_for_load >= self._lane.limits.queue:
                raise self._queue_full(f"{served.name!r} is being loaded", served.waiting_for_load)
            self._wait_for(self._load(served))
            return
        if self._failed and (served.is_hopeless(self._failed) or len(self._failed) >= TRIES_MOST):
            raise Refusal(
                502, f"{self._failure}. No other replica of {served.name!r} could take over; try again.",
                code="replica_failed", retry_after_s=2,
            )  # fmt: skip
        if in_turn or not served.queue:
            lane = self._lane
            now_s = lane.now_s() if in_turn else self._since_s
            pick = served.pick(self._failed, *self._hint(served), now_s, lane.draw)
            if pick is not None:
                self._pick = pick
                self._send(pick[0])
                return
        self._queue(served)

    def _queue(self, served: ServedModel) -> None:
        """Whoever waited for the load was let in then: now its wait begins anew, however many came with it."""
        waiting = len(served.queue)
        if waiting >= self._lane.limits.queue and not self._waited_for_load:
            raise self._queue_full(f"every replica of {served.name!r} is busy", waiting)
        now_s = self._lane.now_s()
        self._queued_since_s = self._queued_since_s or now_s
        deadline_s = self._queued_since_s + self._lane.limits.queue_wait_s
        self._waiter = Waiter(served, self._key.id or "", self, now_s=now_s, deadline_s=deadline_s)
        self._position = self._position or self._waiter.position

    def _queue_full(self, why: str, waiting: int) -> Refusal:
        return Refusal(
            429,
            f"{why} and {waiting} requests wait already; try again later",
            code="queue_full",
            retry_after_s=min(self._lane.limits.queue_wait_s, 5.0),
        )

    def on_turn(self) -> None:
        """Taken out of the queue: there is room somewhere."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and self._served is not None:
            self._lane.meters.waited.child(self._served.name).observe(self._lane.now_s() - waiter.since_s)
            story = self._tell_story()
            story.position, story.queued_s = self._position, self._lane.now_s() - self._queued_since_s
        self._again(in_turn=True)

    def on_waited_too_long(self) -> None:
        self._waiter = None
        self._refuse(
            Refusal(
                503,
                f"every replica of {self._model_name()!r} stayed busy for {self._lane.limits.queue_wait_s:g} s;"
                f" this request began as number {self._position} in line",
                code="queue_wait_exceeded",
                retry_after_s=5,
            )
        )

    def _again(self, *, in_turn: bool = False) -> None:
        if self._over or self._served is None:
            return
        try:
            self._place(self._served, in_turn=in_turn)
        except Refusal as refusal:
            self._refuse(refusal)

    def _load_wait_s(self) -> float:
        """A client may be less patient than the frontend."""
        asked, most = self.headers.get(LOAD_WAIT_HEADER, b""), self._lane.limits.load_wait_s
        return min(most, float(asked)) if asked.isdigit() and len(asked) <= LOAD_WAIT_MOST_DIGITS else most

    async def _load(self, served: ServedModel) -> None:
        lane = self._lane
        served.waiting_for_load += 1
        try:
            await lane.loads.ensure(served.name, within_s=self._load_wait_s())
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
            self._waited_for_load = True
            self._tell_story().load_s = lane.now_s() - self._since_s
            self._again()
        finally:
            served.waiting_for_load -= 1

    def _send(self, target: Target) -> None:
        self._target = target
        self._lane.inflight.begin(target)
        self._leased = True
        if target.link is None:
            self._call_driver(target)
            return
        headers, body = self.headers, self.body
        forwarded = b""
        for name in FORWARDED & headers.keys():
            forwarded += b"%b: %b\r\n" % (name, headers[name])
        self._call = target.link.send(
            b"POST %b HTTP/1.1\r\n%b%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (self.path, target.head, forwarded, self._content_type, len(body), body),
            self,
        )

    def _call_driver(self, target: Target) -> None:
        assert self._served is not None
        protocol = target.replica.protocol
        driver = self._lane.drivers.get(protocol)
        if driver is None:
            self.on_failure_text(f"no driver for the protocol {protocol!r} is built into this frontend")
            return
        request = LaneRequest(
            path=self.path.decode("latin-1"),
            model=self._served.name,
            route=self._served.route,
            stream=self._stream,
            content_type=self._content_type.decode("latin-1"),
            body=self.body,
        )
        self._call = DriverCall(self, self._lane.spawn, driver, request, target.replica)

    # What comes back

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        lane, target = self._lane, self._target
        assert target is not None
        self._first_s = self.active_s = lane.now_s()
        if status >= 400 and self._is_not_for_client(status, target):
            return
        if target.avoid_until_s:
            target.note_success()
        self._status = status
        usual = self.keep_alive and not self._position and _CLIENT not in self.headers
        if last and usual and headers is target.repeated:
            self._client.write(
                b"%b%b%b%x\r\ncontent-length: %d\r\n\r\n%b"
                % (target.repeated_head, lane.date_line, lane.id_line, self._number, len(data), data)
            )
            self._complete(cut_usage(data), None)
            return
        head = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        content_type = b""
        for name, value in headers.items():
            name = name.lower()
            if name == b"content-type":
                content_type = value
            elif name == b"content-length":
                self._length = value
            elif name in _PASSED_ON:
                head += b"%b: %b\r\n" % (name, value)
        shown = target.node_head if lane.limits.show_node else b""
        head = b"%bcontent-type: %b\r\n%b" % (head, content_type, shown)
        self._head = b"%b%b%b%x\r\n" % (head, lane.date_line, lane.id_line, self._number)
        if not shown and self._key.admin and _CLIENT in self.headers:
            self._head += target.node_head
        if self._position:
            self._head += b"x-corral-queue-position: %d\r\n" % self._position
        if content_type.startswith(b"application/json"):
            if last and status == 200:
                target.repeated, target.repeated_head = headers, head
            self._held = []
            self._hold(self._held, data, last)
        else:
            self._events = content_type.startswith(b"text/event-stream")
            if last and not self._events:
                self._length = b"%d" % len(data)
            self._open()
            if data or last:
                self.on_data(data, last)

    def _is_not_for_client(self, status: int, target: Target) -> bool:
        if status in (401, 403) and target.link is not None:
            self._give_up_call("the process at its address is another one: it refused the replica's token")
            return True
        if status in (502, 503) and self._served is not None and not self._served.is_hopeless((*self._failed, target)):
            self._give_up_call(f"it answered {status}")
            return True
        if status == 501 and self.path.endswith(b"/embeddings"):
            # The backend's own words would tell how to start it, which is not for the caller to do.
            message = (
                f"{self._model_name()!r} makes no embeddings here: its backend was started without them."
                " They need a model whose configuration has `embeddings: true`."
            )
            self._refuse(Refusal(400, message, code="embeddings_not_supported", param="model"))
            return True
        return False

    def _give_up_call(self, text: str) -> None:
        if self._call is not None:
            self._call.cancel()
        self.on_failure_text(text)

    def _open(self) -> None:
        """From here on bytes have reached the client: no other replica can take over."""
        self._opened = True
        if self._length is not None:
            framing = b"content-length: %b\r\n" % self._length
        elif self.http11:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self.keep_alive = False
            framing = b""
        closing = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self._client.write(b"%b%b%b" % (self._head, framing, closing))
        if self._events:
            self._usage = StreamUsage()

    def on_data(self, data: bytes, last: bool) -> None:
        held = self._held
        if held is not None:
            self._hold(held, data, last)
            return
        self.has_moved = True
        if data:
            usage = self._usage
            if usage is not None:
                usage.events += data.count(b"data: ")
                usage.keep(data)
            if self._chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
        if last:
            self._client.write(data + _END if self._chunked else data)
            self._complete(b"", self._usage.result(whole=True) if self._usage is not None else None)
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
        closing = b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n"
        self._client.write(b"%bcontent-length: %d%b%b" % (self._head, len(data), closing, data))
        self._complete(cut_usage(data), None)

    def on_failure(self, failure: Failure) -> None:
        self.on_failure_text(failure.text)

    def on_failure_text(self, text: str) -> None:
        target, lane = self._target, self._lane
        assert target is not None
        target.note_failure(lane.now_s())
        target.meters.retries.value += 1
        self._failure = f"the replica on node {target.replica.node_name!r} failed: {text}"
        log.info("replica.failed_request", replica=target.replica.id, model=self._model_name(), error=text)
        self._call = None
        self._held = None
        self._length = None
        self._failed = (*self._failed, target)
        self._tell_story().failures.append((target, text))
        self._release()
        lane.table.poke()
        if self._opened:
            self._break(Refusal(502, f"{self._failure}. The answer is incomplete.", code="replica_failed"))
        else:
            # It had its turn already.
            self._again(in_turn=True)

    def _break(self, refusal: Refusal) -> None:
        """After the first byte: a stream of events ends with an error event, anything else with the connection."""
        self._lane.meters.broken.child(self._model_name()).value += 1
        self._tell_ending("broken", str(refusal))
        self._count_part()
        if self._events and (self._chunked or not self.http11):
            event = refusal.event()
            self._client.write(b"%x\r\n%b\r\n%b" % (len(event), event, _END) if self._chunked else event)
            self._finish()
            self._client.done(keep=self.keep_alive)
        else:
            self._finish()
            self._client.cut()

    # How it ends

    def _complete(self, usage: bytes, tokens: tuple[int, int] | None) -> None:
        lane, target = self._lane, self._target
        assert target is not None
        if self._call.__class__ is DriverCall:
            tokens = self._call.tokens or tokens
        now_s = lane.now_s()
        lane.ledger.entries.append(
            (target, self._key.id, self._status, self._since_s, self._first_s, now_s, usage, tokens)
        )
        note = self.note(now_s)
        if note is not None:
            lane.notes.entries.append(note)
        self._call = None
        self._over = True
        if self._leased:
            self._leased = False
            lane.inflight.end(target)
        self._client.done(keep=self.keep_alive)

    def _count_part(self) -> None:
        """An answer that began and will not end was worked for all the same: it counts with what came of it."""
        target, usage = self._target, self._usage
        assert target is not None
        tokens = usage.result(whole=False) if usage is not None else None
        self._lane.ledger.entries.append(
            (target, self._key.id, self._status, self._since_s, self._first_s, self._lane.now_s(), b"", tokens)
        )

    def _refuse(self, refusal: Refusal) -> None:
        if self._over:
            return
        if self._opened:
            self._break(refusal)
            return
        self._lane.meters.refusals.child(str(refusal.status), refusal.code or "").value += 1
        self._status = refusal.status
        self._tell_ending("refused", str(refusal))
        headers = [*refusal.headers(), self._lane.date_line]
        self._send_simple(refusal.status, headers, refusal.body())

    def _send_simple(self, status: int, headers: list[bytes] | tuple[bytes, ...], body: bytes) -> None:
        shown = b"" if self.method == b"HEAD" else body
        named = (*headers, b"%b%x\r\n" % (self._lane.id_line, self._number))
        self._client.write(simple_answer(status, named, shown, close=not self.keep_alive))
        self._finish()
        self._client.done(keep=self.keep_alive)

    def cancel(self) -> None:
        """The client is gone: the replica learns it at once."""
        if self._over:
            return
        if self._served is not None:
            self._lane.meters.gone.child(self._served.name).value += 1
            self._tell_ending("left", "the client closed the connection")
        if self._opened:
            self._count_part()
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

    def _model_name(self) -> str:
        return self._served.name if self._served else ""

    def _release(self) -> None:
        if self._leased and self._target is not None:
            self._leased = False
            self._lane.inflight.end(self._target)

    # What is remembered of it

    def _tell_story(self) -> Story:
        if self._story is None:
            self._story = Story()
        return self._story

    def _tell_ending(self, state: str, text: str) -> None:
        story = self._tell_story()
        story.state, story.ending = state, text
        if self._queued_since_s and story.queued_s is None:
            story.position, story.queued_s = self._position, self._lane.now_s() - self._queued_since_s

    def note(self, ended_s: float = 0.0) -> Note | None:
        """None before it is known which model it is for."""
        if self._served is None:
            return None
        return (
            self._number, self._served, self._pick, self._status, self._key.id, self.path,
            self._since_s, self._first_s, ended_s, self._story,
        )  # fmt: skip

    def _finish(self) -> None:
        note = self.note(self._lane.now_s())
        if note is not None:
            self._lane.notes.entries.append(note)
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


def _model(served: ServedModel) -> dict[str, object]:
    created_s = served.route.created_at_ms // 1000
    return {"id": served.name, "object": "model", "created": created_s, "owned_by": "corral"}


def _unquote(path: bytes) -> str:
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
