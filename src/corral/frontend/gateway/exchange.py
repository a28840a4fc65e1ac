"""One request's life: who asks, for which model, at which replica, and what becomes of it.

Plain calls while everything is at hand; a task only where something must be waited for: an unknown key, a cold model,
a driver. Whatever happens, it ends in `_finish`, once, which gives back the lease.

The warm path is `start`, `_send` and `on_answer`; it is written for speed, everything beside it for reading. How the
answer's bytes reach the client is in `reply.py`."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import structlog

from corral.core.errors import CorralError
from corral.frontend.gateway.answers import Refusal, refusal_of, simple_answer
from corral.frontend.gateway.authenticate import ask_who
from corral.frontend.gateway.await_load import load_wait_s, wait_until_loaded
from corral.frontend.gateway.driver_call import DriverCall
from corral.frontend.gateway.drivers import LaneRequest
from corral.frontend.gateway.endpoints import PROXIED
from corral.frontend.gateway.error_responses import (
    crashed,
    no_embeddings,
    no_other,
    nobody_came,
    queue_full,
    sent_nothing,
    stayed_busy,
)
from corral.frontend.gateway.keys import NO_AUTH, LaneKey
from corral.frontend.gateway.model_list import tell_models, unknown_model, wrong_method
from corral.frontend.gateway.peek import peek_json, peek_multipart, rename_model, rename_model_in_form
from corral.frontend.gateway.reply import Client, Reply, ReplyHead
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.targets import Endpoint, Pick, ServedModel, Waiter
from corral.frontend.gateway.token_usage import Said, cut_usage
from corral.frontend.gateway.trace import Note, RequestTrace
from corral.frontend.gateway.unsupported_endpoint import STATUSES, LackingReply, explain_lack
from corral.frontend.gateway.upstream.calls import Failure, FailureKind, Headers, UpstreamCall

if TYPE_CHECKING:
    from corral.frontend.gateway.gateway import Gateway

log = structlog.get_logger()

HINT_BYTES = 1024
TRIES_MOST = 8
GONE_WITHIN_S = 2.0
_NO_HINT = (b"", "")
_NOT_BEGUN = (b"", b":")
"""How pieces begin that are no part of the answer: a head alone, and comments that keep a stream of events alive."""


class ProxiedRequest:
    # Most requests need few of these: as defaults of the class they cost nothing.
    _key: LaneKey = NO_AUTH
    _served: ServedModel | None = None
    _target: Endpoint | None = None
    _pick: Pick | None = None
    _open_before = 0
    """Requests that the replica had already."""
    _story: RequestTrace | None = None
    _leased = False
    _call: UpstreamCall | None = None
    _task: asyncio.Task[None] | None = None
    _waiter: Waiter | None = None
    _failed: tuple[Endpoint, ...] = ()
    _tries = 0
    _failure = ""
    _away = False
    _stream = False
    _reply: Reply | None = None
    _status = 0
    _position = 0
    _queued_since_s = 0.0
    _waited_for_load = False
    _looked = False
    """Whether the store was asked for a model the table does not know."""
    _first_s = 0.0
    """When the answer itself began: a stream's head comes as soon as it is asked for, its first token much later."""
    _active_s = 0.0
    """When it was last sent to a replica again, or the replica last said something."""
    _over = False

    def __init__(self, lane: "Gateway", client: Client, head: RequestHead, body: bytes) -> None:
        self._lane = lane
        self._client = client
        self.head = head
        self.body = body
        self.keep_alive = head.keep_alive
        self._number = lane.next_number()
        self._since_s = lane.now_s()

    # Who asks, and what for

    def start(self) -> None:
        key = self._lane.keys.find(self.head.authorization)
        if key is not None:
            self._attempt(key)
        else:
            self._wait_for(self._ask_who())

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._lane.spawn(self._carry_out(work))

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("lane.request_crashed", model=self._model_name())
            self._refuse(crashed())

    async def _ask_who(self) -> None:
        try:
            key = await ask_who(
                self._lane.keys, self.head.headers, self.head.method, self._lane.proxies, self._client.address()
            )
        except Refusal as refusal:
            self._refuse(refusal)
        except CorralError as error:
            self._refuse(refusal_of(error))
        else:
            self._attempt(key)

    def _attempt(self, key: LaneKey) -> None:
        self._key = key
        self._client.is_known = True
        head, table = self.head, self._lane.table
        try:
            if not head.is_call:
                self._tell_models(key)
                return
            peek = peek_multipart(self.body, head.content_type) if head.is_form else peek_json(self.body)
            name = peek.model
            served = table.by_name.get(name)
            if served is None and name and not self._looked:
                self._wait_for(self._look_again(key))
                return
            if served is None or (key.models is not None and served.name not in key.models):
                raise unknown_model(table, key, name)
            self._served = served
            if peek.stream:
                self._stream = True
            if served.name != name:
                self._rename(served.name)
            self._place(served)
        except Refusal as refusal:
            self._refuse(refusal)
        except CorralError as error:
            self._refuse(refusal_of(error))
        except Exception:
            # A bug of ours: the client hears of it, and its connection and other requests go on.
            log.exception("lane.request_crashed", model=self._model_name())
            self._refuse(crashed())

    async def _look_again(self, key: LaneKey) -> None:
        """Another frontend may just have added the model."""
        self._looked = True
        try:
            await self._lane.table.catch_up()
        except CorralError as error:
            self._refuse(refusal_of(error))
        else:
            self._attempt(key)

    def _tell_models(self, key: LaneKey) -> None:
        method, path = self.head.method, self.head.path
        if path in PROXIED:
            raise wrong_method(method, right="POST")
        body = tell_models(self._lane.table, key, method, path)
        self._send_simple(200, (b"content-type: application/json\r\n",), body)

    def _rename(self, model: str) -> None:
        self.body = (
            rename_model_in_form(self.body, self.head.content_type, model)
            if self.head.is_form
            else rename_model(self.body, model)
        )

    # Where it goes

    def _hint(self, served: ServedModel) -> tuple[bytes, str]:
        """What requests that belong together have in common, and what that is."""
        if self.head.session:
            return self.head.session, "session"
        return (self.body[:HINT_BYTES], "prefix") if served.has_prefix_affinity else _NO_HINT

    def _place(self, served: ServedModel, *, in_turn: bool = False) -> None:
        """At a replica, in line, or refused. The queue is not overtaken."""
        targets = served.targets
        if not targets:
            if served.waiting_for_load >= self._lane.limits.queue:
                raise queue_full(f"{served.name!r} is being loaded", served.waiting_for_load, self._lane.limits)
            self._wait_for(self._load(served))
            return
        if self._failed and (self._tries >= TRIES_MOST or served.is_hopeless(self._failed)):
            if self._away:
                self._wait_for_return(served)
            elif self._tries == 1:
                self._wait_for(self._look_whether_gone(served))
            else:
                raise no_other(self._failure, self._model_name())
            return
        if in_turn or not served.queue.length:
            lane = self._lane
            now_s = lane.now_s() if in_turn else self._since_s
            only = targets[0]
            has_room = only.outstanding < only.limit and only.avoid_until_s <= now_s
            if has_room and len(targets) == 1 and not self._failed:
                self._pick = None
                self._open_before = only.outstanding
                self._send(only)
                return
            pick = served.pick(self._failed, *self._hint(served), now_s, lane.draw)
            if pick is not None:
                self._pick = pick
                self._send(pick[0])
                return
        self._queue(served)

    def _wait_for_return(self, served: ServedModel) -> None:
        """A process that starts again is back within seconds: in line for it, or for another one."""
        if self._tries >= TRIES_MOST:
            raise nobody_came(self._failure, self._model_name())
        self._failed = ()
        self._queue(served)

    async def _look_whether_gone(self, served: ServedModel) -> None:
        """It broke off, and there is no other. If its process is dead it will be replaced; if not, it failed us."""
        assert self._target is not None
        self._away = not await self._target.link.probe(b"", within_s=GONE_WITHIN_S)
        try:
            if not self._away:
                raise no_other(self._failure, self._model_name())
            self._wait_for_return(served)
        except Refusal as refusal:
            self._refuse(refusal)

    def _queue(self, served: ServedModel) -> None:
        """Whoever waited for the load was let in then: now its wait begins anew, however many came with it."""
        waiting = len(served.queue)
        if waiting >= self._lane.limits.queue and not self._waited_for_load:
            raise queue_full(f"every replica of {served.name!r} is busy", waiting, self._lane.limits)
        now_s = self._lane.now_s()
        self._queued_since_s = self._queued_since_s or now_s
        deadline_s = self._queued_since_s + self._lane.limits.queue_wait_s
        self._waiter = Waiter(served, self._key.id or "", self, now_s=now_s, deadline_s=deadline_s)
        self._position = self._position or self._waiter.position

    def on_turn(self) -> None:
        """Taken out of the queue: there is room somewhere."""
        self._leave_line()
        story = self._tell_story()
        story.position, story.queued_s = self._position, self._lane.now_s() - self._queued_since_s
        self._again(in_turn=True)

    def _leave_line(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._lane.meters.waited.child(self._model_name()).observe(self._lane.now_s() - waiter.since_s)

    def on_waited_too_long(self) -> None:
        self._leave_line()
        if self._away:
            self._refuse(nobody_came(self._failure, self._model_name()))
        else:
            self._refuse(stayed_busy(self._model_name(), self._position, self._lane.limits))

    def _again(self, *, in_turn: bool = False) -> None:
        if self._over or self._served is None:
            return
        try:
            self._place(self._served, in_turn=in_turn)
        except Refusal as refusal:
            self._refuse(refusal)

    async def _load(self, served: ServedModel) -> None:
        lane = self._lane
        within_s = load_wait_s(self.head.headers, most_s=lane.limits.load_wait_s)
        served.waiting_for_load += 1
        try:
            await wait_until_loaded(lane.loads, lane.table, served, within_s=within_s)
        except CorralError as error:
            self._refuse(refusal_of(error))
        else:
            self._waited_for_load = True
            self._tell_story().load_s = lane.now_s() - self._since_s
            self._again()
        finally:
            served.waiting_for_load -= 1

    def _send(self, target: Endpoint) -> None:
        self._target = target
        if self._tries or self._position:
            self._away = False
            self._active_s = self._lane.now_s()
        self._lane.inflight.begin(target)
        self._leased = True
        if target.driven:
            self._call_driver(target)
            return
        head, body = self.head, self.body
        request = b"%b%b%b%d\r\n\r\n%b" % (head.opening, target.head, head.sent, len(body), body)
        self._call = target.link.send(request, self)

    def _call_driver(self, target: Endpoint) -> None:
        assert self._served is not None
        protocol = target.replica.protocol
        driver = self._lane.drivers.get(protocol)
        if driver is None:
            self._fail(f"no driver for the protocol {protocol!r} is built into this frontend", away=False)
            return
        request = LaneRequest(
            path=self.head.path.decode("latin-1"),
            model=self._served.name,
            route=self._served.route,
            stream=self._stream,
            content_type=self.head.content_type.decode("latin-1"),
            body=self.body,
        )
        self._call = DriverCall(self, self._lane.spawn, driver, request, target.replica)

    # What comes back

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        lane, target = self._lane, self._target
        assert target is not None
        now_s = target.heard_s = lane.now_s()
        if last or data[:1] not in _NOT_BEGUN:
            self._first_s = now_s
        else:
            self._first_s, self._active_s = 0.0, now_s
        if status >= 400 and self._is_told_otherwise(status, headers, data, last, target):
            return
        if target.avoid_until_s:
            target.note_success()
        self._status = status
        usual = self.keep_alive and not self._position and not self.head.is_from_corral
        if last and usual and headers is target.repeated:
            self._client.write(
                b"%b%b%x\r\ncontent-length: %d\r\n\r\n%b"
                % (target.repeated_head, lane.last_lines, self._number, len(data), data)
            )
            self._complete(cut_usage(data), now_s)
            return
        head = ReplyHead(status, headers)
        shown = target.node_head if lane.limits.show_node else b""
        head.lines += shown
        if head.is_json and last and status == 200:
            target.repeated, target.repeated_head = headers, head.lines
        more = b"%b%x\r\n" % (lane.last_lines, self._number)
        if not shown and self._key.admin and self.head.is_from_corral:
            more += target.node_head
        if self._position:
            more += b"x-corral-queue-position: %d\r\n" % self._position
        reply = self._reply = Reply(self._client, head, more, http11=self.head.http11, keep_alive=self.keep_alive)
        self.on_data(data, last)
        if self._first_s:
            self._relay(reply)
        if self._client.is_slow:
            self.pause()

    def on_data(self, data: bytes, last: bool) -> None:
        reply = self._reply
        assert reply is not None
        reply.put(data, last=last)
        if not self._first_s and (last or data[:1] not in _NOT_BEGUN):
            self._first_s = self._lane.now_s()
            self._relay(reply)
        if last:
            self.keep_alive = reply.keep_alive
            self._complete(reply.usage(whole=True), self._lane.now_s())

    def _relay(self, reply: Reply) -> None:
        """From the first token on, which must be seen to know when it came."""
        if reply.is_chunked and reply.relay is not None and self._call is not None:
            self._call.relay_chunks(reply.relay)

    def _is_not_for_client(self, status: int, target: Endpoint) -> bool:
        if status in (401, 403) and not target.driven:
            text = "the process at its address is another one: it refused the replica's token"
            self._give_up_call(text, away=True)
            return True
        if status in (502, 503) and self._served is not None and not self._served.is_hopeless((*self._failed, target)):
            self._give_up_call(f"it answered {status}")
            return True
        if status == 501 and self.head.path.endswith(b"/embeddings"):
            # The backend's own words would tell how to start it, which is not for the caller to do.
            self._refuse(no_embeddings(self._model_name()))
            return True
        return False

    def _is_told_otherwise(self, status: int, headers: Headers, data: bytes, last: bool, target: Endpoint) -> bool:
        return self._is_not_for_client(status, target) or self._is_held(status, headers, data, last, target)

    def _is_held(self, status: int, headers: Headers, data: bytes, last: bool, target: Endpoint) -> bool:
        """What may say that the backend does not have the endpoint is told in our words, once it is whole."""
        served, path = self._served, self.head.path.decode("latin-1")
        if status not in STATUSES or served is None or self._call.__class__ is DriverCall:
            return False
        self._status = status

        def explain(body: bytes) -> Refusal | None:
            refusal = explain_lack(served.name, path, status, body)
            if refusal is not None:
                self._status = refusal.status
            return refusal

        shown = target.node_head if self._lane.limits.show_node else b""
        more = b"%b%b%x\r\n" % (shown, self._lane.last_lines, self._number)
        head, http11 = ReplyHead(status, headers), self.head.http11
        self._reply = LackingReply(self._client, head, more, http11=http11, keep_alive=self.keep_alive, explain=explain)
        self.on_data(data, last)
        return True

    def _give_up_call(self, text: str, *, away: bool = False) -> None:
        if self._call is not None:
            self._call.cancel()
        self._fail(text, away=away)

    def on_failure(self, failure: Failure) -> None:
        self._fail(failure.text, away=failure.kind is FailureKind.UNREACHABLE)

    def _fail(self, text: str, *, away: bool) -> None:
        """`away`: nobody is there who could have worked on the request; a process that starts again might."""
        target, lane = self._target, self._lane
        assert target is not None
        target.note_failure(lane.now_s())
        target.meters.retries.value += 1
        self._failure = f"the replica on node {target.replica.node_name!r} failed: {text}"
        log.info("replica.failed_request", replica=target.replica.id, model=self._model_name(), error=text)
        self._call = None
        self._tries += 1
        self._away = away
        self._failed = (*self._failed, target)
        self._tell_story().failures.append((target, text))
        self._release()
        lane.table.notify()
        if self._is_opened:
            self._break(Refusal(502, f"{self._failure}. The answer is incomplete.", code="replica_failed"))
        else:
            self._reply = None
            # It had its turn already.
            self._again(in_turn=True)

    def leave_silent(self, target: Endpoint, text: str, lifeless_s: float) -> None:
        """`target` shows no sign of life: what it has not begun to answer goes elsewhere, if there is an elsewhere.
        What it has begun cannot, and is given up much later."""
        lane, served = self._lane, self._served
        if target is not self._target or self._call is None or served is None:
            return
        now_s = lane.now_s()
        others = (other for other in served.targets if other is not target and other not in self._failed)
        if self._is_opened:
            if lifeless_s > lane.limits.lifeless_s and not self._hears(now_s):
                self._give_up_call(text)
        elif any(other.has_room(now_s) for other in others):
            self._give_up_call(text)

    def _break(self, refusal: Refusal) -> None:
        """After the first byte: a stream of events ends with an error event, anything else with the connection."""
        assert self._reply is not None
        assert self._target is not None
        self._target.meters.broken.value += 1
        self._tell_ending("broken", str(refusal))
        self._count_part(self._reply)
        is_told = self._reply.break_off(refusal.event())
        self._finish()
        if is_told:
            self._client.done(keep=self._reply.keep_alive)
        else:
            self._client.cut()

    # How it ends

    def _complete(self, said: Said, ended_s: float) -> None:
        lane, target, served = self._lane, self._target, self._served
        assert target is not None
        assert served is not None
        if self._call.__class__ is DriverCall:
            said = self._call.tokens or said
        lane.ledger.add(
            (
                self._number, served, target, self._open_before, self._pick, self._status, self._key.id,
                self.head.path, self._since_s, self._first_s, ended_s, self._story,
            ),
            said,
        )  # fmt: skip
        self._call = None
        self._over = True
        if self._leased:
            self._leased = False
            lane.inflight.end(target)
        self._client.done(keep=self.keep_alive)

    def _count_part(self, reply: Reply) -> None:
        note = self.note(self._lane.now_s())
        assert note is not None
        self._lane.ledger.count_part(note, reply.usage(whole=False))

    def _refuse(self, refusal: Refusal) -> None:
        if self._over:
            return
        if self._is_opened:
            self._break(refusal)
            return
        self._lane.meters.refusals.child(str(refusal.status), refusal.code or "").value += 1
        self._status = refusal.status
        self._tell_ending("refused", str(refusal))
        self._send_simple(refusal.status, refusal.headers(), refusal.body())

    def _send_simple(self, status: int, headers: Iterable[bytes], body: bytes) -> None:
        named = (*headers, b"%b%x\r\n" % (self._lane.last_lines, self._number))
        answer = simple_answer(status, named, body, close=not self.keep_alive)
        self._client.write(answer.removesuffix(body) if self.head.method == b"HEAD" else answer)
        self._finish()
        self._client.done(keep=self.keep_alive)

    def cancel(self) -> None:
        """The client is gone: the replica learns it at once."""
        if self._over:
            return
        if self._served is not None:
            self._lane.meters.gone.child(self._served.name).value += 1
            self._tell_ending("left", "the client closed the connection")
        if self._reply is not None and self._reply.opened:
            self._reply.drop()
            self._count_part(self._reply)
        self._finish()

    def stop(self, refusal: Refusal) -> None:
        """We end it: the frontend stops, or the replica is silent for too long."""
        if self._over:
            return
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        self._refuse(refusal)

    def pause(self) -> None:
        """The client does not read what it was sent."""
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """The client reads again."""
        if self._call is not None:
            self._call.resume()

    def tick(self, now_s: float) -> None:
        """The client waits: does the replica that has the request still say something?"""
        if self._call is None:
            return
        limits, target = self._lane.limits, self._target
        assert target is not None
        if self._hears(now_s):
            return
        silent_s = now_s - max(self._since_s, self._active_s, self._first_s)
        if silent_s > limits.silence_s:
            self.stop(sent_nothing(limits))
        elif silent_s > limits.probe_after_s:
            self._lane.liveness.doubt(target)

    def _hears(self, now_s: float) -> bool:
        """Whether more of the answer came since this was last asked."""
        if self._reply is None or self._target is None or not self._reply.take_moved():
            return False
        self._active_s = self._target.heard_s = now_s
        return True

    @property
    def _is_opened(self) -> bool:
        return self._reply is not None and self._reply.opened

    def _model_name(self) -> str:
        return self._served.name if self._served else ""

    def _release(self) -> None:
        if self._leased and self._target is not None:
            self._leased = False
            self._lane.inflight.end(self._target)

    # What is remembered of it

    def _tell_story(self) -> RequestTrace:
        if self._story is None:
            self._story = RequestTrace()
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
            self._number, self._served, self._target, self._open_before, self._pick, self._status, self._key.id,
            self.head.path, self._since_s, self._first_s, ended_s, self._story,
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
