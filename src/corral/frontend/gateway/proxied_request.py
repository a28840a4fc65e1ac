"""One request through the gateway: authentication, routing, the attempts at replicas, and the answer.

`phases.py` has the phases and the transitions between them. While everything is in memory, plain calls move a request
on. A task runs only in phases that wait: for the store, a load or a probe. Every path ends in `_complete` or `_end`,
once, and both return the lease on the replica.

The warm path is `start`, `_route`, `_place`, `_send`, `on_answer` and `_complete`. It is written for speed, the rest
for reading. `queueing.py` has the queue, `failover.py` the decisions after a failure, `reply.py` the way of an answer's
bytes to the client, and the client's own form of requests and answers is behind `client_protocol.py`."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import structlog

from corral.core.errors import CorralError
from corral.frontend.gateway.authenticate import authenticate
from corral.frontend.gateway.await_load import load_wait_s, wait_until_loaded
from corral.frontend.gateway.driver_call import DriverCall
from corral.frontend.gateway.drivers import DriverRequest
from corral.frontend.gateway.endpoints import CHOSEN, Endpoint, PickFields, ServedModel
from corral.frontend.gateway.error_responses import (
    ErrorResponse,
    error_response_of,
    incomplete,
    internal_error,
    no_embeddings,
    queue_full,
    queue_timeout,
    replica_silent,
)
from corral.frontend.gateway.failover import Failures, Step, Verdict, judge_error, next_step
from corral.frontend.gateway.keys import NO_AUTH, ClientKey
from corral.frontend.gateway.model_list import unknown_model
from corral.frontend.gateway.phases import (
    ENDED,
    ROUTING,
    AtReplica,
    Authenticating,
    AwaitingLoad,
    Ended,
    Phase,
    Probing,
    Queued,
    Relaying,
    Resolving,
    Sent,
)
from corral.frontend.gateway.queueing import join_queue
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead, encode_response
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.request_trace import FailedAttempt, RequestRecord, RequestTrace
from corral.frontend.gateway.token_usage import ReportedUsage, cut_usage
from corral.frontend.gateway.unsupported_endpoint import UnsupportedReply, explain_unsupported
from corral.frontend.gateway.upstream.calls import Failure, FailureKind, Headers

if TYPE_CHECKING:
    from corral.frontend.gateway.gateway import Gateway

log = structlog.get_logger()

PREFIX_BYTES = 1024
PROBE_WITHIN_S = 2.0
_NO_HINT = (b"", "")
_NOT_BEGUN = (b"", b":")
"""How data begins that is not yet the answer: a head alone, and the comments that keep a stream of events alive."""
_TaskPhase = type[Authenticating] | type[Resolving] | type[AwaitingLoad] | type[Probing]


class ProxiedRequest:
    # Most requests set few of these. As defaults of the class they cost nothing.
    _phase: Phase = ROUTING
    _key: ClientKey = NO_AUTH
    _served: ServedModel | None = None
    _stream = False
    _status = 0
    _first_byte_s = 0.0
    """When the answer itself began. A stream's head comes at once, its first token much later."""
    _active_s = 0.0
    """When it was last sent to a replica again, or the replica last sent something."""
    _failures: Failures | None = None
    _trace: RequestTrace | None = None

    def __init__(self, gateway: "Gateway", client: ClientConnection, head: RequestHead, body: bytes) -> None:
        self._gateway = gateway
        self._client = client
        self.head = head
        self.body = body
        self.keep_alive = head.keep_alive
        self._number = gateway.next_number()
        self._began_s = gateway.now_s()

    @property
    def phase(self) -> Phase:
        return self._phase

    # Authentication and routing

    def start(self) -> None:
        key = self._gateway.keys.find(self.head.authorization)
        if key is not None:
            self._route(key)
        else:
            self._wait_in(Authenticating, self._authenticate())

    def _wait_in(self, phase: _TaskPhase, work: Coroutine[Any, Any, None]) -> None:
        self._phase = phase(self._gateway.spawn(self._guard(work)))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ErrorResponse as response:
            self._reject(response)
        except CorralError as error:
            self._reject(error_response_of(error))
        except Exception as error:  # noqa: BLE001  it is logged
            self._report_crash(error)

    def _report_crash(self, error: Exception) -> None:
        """A bug in the gateway. The client gets an error; its connection and all other requests continue."""
        log.error("gateway.request_crashed", model=self._model_name(), exc_info=error)
        self._reject(internal_error())

    async def _authenticate(self) -> None:
        gateway, head = self._gateway, self.head
        key = await authenticate(gateway.keys, head.headers, head.method, gateway.proxies, self._client.address())
        self._phase = ROUTING
        self._route(key)

    def _route(self, key: ClientKey, *, is_table_fresh: bool = False) -> None:
        self._key = key
        self._client.is_known = True
        head, table = self.head, self._gateway.table
        try:
            if not head.is_call:
                body = head.protocol.answer_locally(head, table, key)
                self._answer(200, (b"content-type: application/json\r\n",), body)
                return
            peek = head.read_call(self.body)
            name = peek.model
            served = table.by_name.get(name)
            if served is None and name and not is_table_fresh:
                self._wait_in(Resolving, self._resolve(key))
                return
            if served is None or (key.models is not None and served.name not in key.models):
                raise unknown_model(table, key, name)
            self._served = served
            if peek.stream:
                self._stream = True
            if served.name != name:
                self.body = head.protocol.with_model(head, self.body, served.name)
            self._place(served)
        except ErrorResponse as response:
            self._reject(response)
        except CorralError as error:
            self._reject(error_response_of(error))
        except Exception as error:  # noqa: BLE001  it is logged
            self._report_crash(error)

    async def _resolve(self, key: ClientKey) -> None:
        """Another frontend may just have added the model."""
        await self._gateway.table.catch_up()
        self._phase = ROUTING
        self._route(key, is_table_fresh=True)

    # Placement: at a replica, in the queue, or waiting for a load

    def _place(self, served: ServedModel, *, has_turn: bool = False) -> None:
        """`has_turn`: the request need not wait behind the queue. Raises ErrorResponse."""
        endpoints, gateway, failures = served.endpoints, self._gateway, self._failures
        if not endpoints:
            if served.waiting_for_load >= gateway.limits.queue:
                raise queue_full(f"{served.name!r} is being loaded", served.waiting_for_load, gateway.limits)
            self._wait_in(AwaitingLoad, self._load(served))
            return
        if failures is not None and not self._may_retry(failures, served):
            return
        if has_turn or not served.queue.length:
            now_s = gateway.now_s() if has_turn else self._began_s
            only = endpoints[0]
            if (
                failures is None
                and len(endpoints) == 1
                and only.outstanding < only.limit
                and only.avoid_until_s <= now_s
            ):
                self._send(only, None)
                return
            excluded = failures.excluded if failures is not None else ()
            pick = served.pick(excluded, *self._hint(served), now_s, gateway.draw)
            if pick is not None:
                self._send(pick[CHOSEN], pick)
                return
        self._queue(served)

    def _hint(self, served: ServedModel) -> tuple[bytes, str]:
        """What related requests have in common, and the name of that rule."""
        if self.head.session:
            return self.head.session, "session"
        return (self.body[:PREFIX_BYTES], "prefix") if served.has_prefix_affinity else _NO_HINT

    def _queue(self, served: ServedModel) -> None:
        gateway, trace, key_id = self._gateway, self._trace_it(), self._key.id or ""
        self._phase = Queued(
            join_queue(served, self, key_id=key_id, trace=trace, limits=gateway.limits, now_s=gateway.now_s())
        )

    def on_turn(self) -> None:
        """The request was taken from the queue: a replica has capacity."""
        trace = self._leave_queue()
        trace.queued_s = self._gateway.now_s() - trace.queued_since_s
        self._place_again()

    def on_queue_timeout(self) -> None:
        """The request waited as long as it may, and was taken from the queue."""
        trace, failures = self._leave_queue(), self._failures
        if failures is not None and failures.unreachable:
            self._reject(failures.error(self._model_name()))
        else:
            self._reject(queue_timeout(self._model_name(), trace.position, self._gateway.limits))

    def _leave_queue(self) -> RequestTrace:
        assert isinstance(self._phase, Queued)
        waited_s = self._gateway.now_s() - self._phase.waiter.since_s
        self._gateway.metrics.queue_wait.child(self._model_name()).observe(waited_s)
        self._phase = ROUTING
        return self._trace_it()

    def _place_again(self) -> None:
        """The request has its turn: it waited for it, or had it before a replica failed."""
        if self._served is None:
            return
        try:
            self._place(self._served, has_turn=True)
        except ErrorResponse as response:
            self._reject(response)

    async def _load(self, served: ServedModel) -> None:
        gateway = self._gateway
        within_s = load_wait_s(self.head.headers, max_s=gateway.limits.load_wait_s)
        served.waiting_for_load += 1
        try:
            await wait_until_loaded(gateway.loads, gateway.table, served, within_s=within_s)
            self._phase = ROUTING
            self._trace_it().load_s = gateway.now_s() - self._began_s
            self._place(served)
        finally:
            served.waiting_for_load -= 1

    # Sending

    def _send(self, endpoint: Endpoint, pick: PickFields | None) -> None:
        gateway, head, body = self._gateway, self.head, self.body
        sent = self._phase = Sent()
        sent.endpoint = endpoint
        sent.outstanding_before = endpoint.outstanding
        sent.pick = pick
        sent.call = sent.reply = None
        if self._trace is not None:
            self._active_s = gateway.now_s()
        gateway.inflight.begin(endpoint)
        if endpoint.driven:
            self._call_driver(sent)
            return
        request = b"%b%b%b%d\r\n\r\n%b" % (head.opening, endpoint.head, head.sent, len(body), body)
        sent.call = endpoint.link.send(request, self)

    def _call_driver(self, sent: Sent) -> None:
        assert self._served is not None
        replica = sent.endpoint.replica
        driver = self._gateway.drivers.get(replica.protocol)
        if driver is None:
            self._fail(sent, f"this frontend has no driver for the protocol {replica.protocol!r}", unreachable=False)
            return
        request = DriverRequest(
            path=self.head.path.decode("latin-1"),
            model=self._served.name,
            route=self._served.route,
            stream=self._stream,
            content_type=self.head.content_type.decode("latin-1"),
            body=self.body,
        )
        sent.call = DriverCall(self, self._gateway.spawn, driver, request, replica)

    # The answer

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        gateway, sent = self._gateway, self._phase
        assert sent.__class__ is Sent
        endpoint = sent.endpoint
        now_s = endpoint.heard_s = gateway.now_s()
        if last or data[:1] not in _NOT_BEGUN:
            self._first_byte_s = now_s
        else:
            self._first_byte_s, self._active_s = 0.0, now_s
        if status >= 400 and self._handles_error(sent, status, headers, data, last):
            return
        if endpoint.avoid_until_s:
            endpoint.record_success()
        self._status = status
        trace = self._trace
        is_usual = self.head.is_relayed and self.keep_alive and (trace is None or not trace.position)
        if last and is_usual and headers is endpoint.repeated:
            self._client.write(
                b"%b%b%x\r\ncontent-length: %d\r\n\r\n%b"
                % (endpoint.repeated_head, gateway.last_lines, self._number, len(data), data)
            )
            self._complete(sent, cut_usage(data), now_s)
            return
        head = ReplyHead(status, headers)
        shown = endpoint.node_head if gateway.limits.show_node else b""
        head.lines += shown
        if head.is_json and last and status == 200:
            endpoint.repeated, endpoint.repeated_head = headers, head.lines
        more = b"%b%x\r\n" % (gateway.last_lines, self._number)
        if not shown and self._key.admin and self.head.is_from_corral:
            more += endpoint.node_head
        if trace is not None and trace.position:
            more += b"x-corral-queue-position: %d\r\n" % trace.position
        make_reply = self.head.protocol.make_reply
        reply = sent.reply = make_reply(self._client, head, more, http11=self.head.http11, keep_alive=self.keep_alive)
        self.on_data(data, last)
        if self._first_byte_s:
            self._relay_chunks(reply)
        if self._client.is_slow:
            self.pause()

    def on_data(self, data: bytes, last: bool) -> None:
        phase = self._phase
        assert isinstance(phase, AtReplica)
        reply = phase.reply
        assert reply is not None
        reply.put(data, last=last)
        if reply.opened and phase.__class__ is Sent:
            phase = self._phase = Relaying(phase, reply)
        if not self._first_byte_s and (last or data[:1] not in _NOT_BEGUN):
            self._first_byte_s = self._gateway.now_s()
            self._relay_chunks(reply)
        if last:
            self.keep_alive = reply.keep_alive
            self._complete(phase, reply.usage(complete=True), self._gateway.now_s())

    def _relay_chunks(self, reply: Reply) -> None:
        """From the first token on, which the gateway must see to know when it came."""
        phase = self._phase
        if reply.is_chunked and reply.relay is not None and isinstance(phase, AtReplica) and phase.call is not None:
            phase.call.relay_chunks(reply.relay)

    def _handles_error(self, sent: Sent, status: int, headers: Headers, data: bytes, last: bool) -> bool:
        """Whether the client does not get the replica's error as it is."""
        assert self._served is not None
        excluded = self._failures.excluded if self._failures is not None else ()
        verdict = judge_error(status, self.head.path, sent.endpoint, self._served, excluded)
        match verdict:
            case Verdict.RELAY:
                return False
            case Verdict.WRONG_PROCESS:
                text = "another process uses its address: it rejected the replica's token"
                self._give_up(sent, text, unreachable=True)
            case Verdict.RETRY:
                self._give_up(sent, f"it answered with status {status}")
            case Verdict.NO_EMBEDDINGS:
                # The backend's own message says how to start it, which is not the client's task.
                self._reject(no_embeddings(self._model_name()))
            case Verdict.HOLD:
                self._status = status
                sent.reply = self._hold_error(sent, status, headers)
                self.on_data(data, last)
        return True

    def _hold_error(self, sent: Sent, status: int, headers: Headers) -> UnsupportedReply:
        shown = sent.endpoint.node_head if self._gateway.limits.show_node else b""
        return UnsupportedReply(
            self._client,
            ReplyHead(status, headers),
            b"%b%b%x\r\n" % (shown, self._gateway.last_lines, self._number),
            http11=self.head.http11,
            keep_alive=self.keep_alive,
            protocol=self.head.protocol,
            explain=self._explain_error(status),
        )

    def _explain_error(self, status: int) -> Callable[[bytes], ErrorResponse | None]:
        model, path = self._model_name(), self.head.path.decode("latin-1")

        def explain(body: bytes) -> ErrorResponse | None:
            response = explain_unsupported(model, path, status, body)
            if response is not None:
                self._status = response.status
            return response

        return explain

    # Failures

    def on_failure(self, failure: Failure) -> None:
        phase = self._phase
        assert isinstance(phase, AtReplica)
        self._fail(phase, failure.text, unreachable=failure.kind is FailureKind.UNREACHABLE)

    def _give_up(self, phase: AtReplica, text: str, *, unreachable: bool = False) -> None:
        """The gateway ends the attempt."""
        if phase.call is not None:
            phase.call.cancel()
        self._fail(phase, text, unreachable=unreachable)

    def _fail(self, phase: AtReplica, text: str, *, unreachable: bool) -> None:
        endpoint, gateway = phase.endpoint, self._gateway
        endpoint.record_failure(gateway.now_s())
        endpoint.metrics.failures.value += 1
        log.info("replica.failed_request", replica=endpoint.replica.id, model=self._model_name(), error=text)
        failures = self._failures = self._failures or Failures()
        failures.add(endpoint, text, unreachable=unreachable)
        self._trace_it().failures.append(FailedAttempt(endpoint, phase.outstanding_before, phase.pick, text))
        phase.call = None
        gateway.table.notify()
        if isinstance(phase, Relaying):
            self._break_off(phase, incomplete(failures.latest))
            return
        self._phase = ROUTING
        gateway.inflight.end(endpoint)
        self._place_again()

    def _may_retry(self, failures: Failures, served: ServedModel) -> bool:
        """False: the request waits for a replica or a probe instead. Raises ErrorResponse."""
        match next_step(failures, served):
            case Step.RETRY:
                return True
            case Step.WAIT:
                self._wait_for_return(failures, served)
            case Step.PROBE:
                self._wait_in(Probing, self._probe(failures, served))
            case Step.GIVE_UP:
                raise failures.error(self._model_name())
        return False

    def _wait_for_return(self, failures: Failures, served: ServedModel) -> None:
        """A process that restarts is back within seconds. The request waits in the queue for it, or for another one."""
        failures.excluded = ()
        self._queue(served)

    async def _probe(self, failures: Failures, served: ServedModel) -> None:
        """The only replica broke off. A dead process will be replaced; a living one failed this request."""
        failures.unreachable = not await failures.excluded[-1].link.probe(b"", within_s=PROBE_WITHIN_S)
        self._phase = ROUTING
        if not failures.unreachable:
            raise failures.error(self._model_name())
        self._wait_for_return(failures, served)

    def abandon(self, endpoint: Endpoint, text: str, unresponsive_s: float) -> None:
        """`endpoint` fails its health probes. A request that it has not begun to answer goes to another replica, if one
        has capacity. An answer that has begun cannot be moved, and is broken off much later."""
        gateway, served, phase = self._gateway, self._served, self._phase
        if served is None or not isinstance(phase, AtReplica) or phase.endpoint is not endpoint:
            return
        now_s = gateway.now_s()
        if isinstance(phase, Relaying):
            if unresponsive_s > gateway.limits.unresponsive_s and not self._has_progress(now_s):
                self._give_up(phase, text)
            return
        excluded = self._failures.excluded if self._failures is not None else ()
        others = (other for other in served.endpoints if other is not endpoint and other not in excluded)
        if any(other.has_capacity(now_s) for other in others):
            self._give_up(phase, text)

    def _break_off(self, phase: Relaying, response: ErrorResponse) -> None:
        """Ends an answer that has begun: a stream of events with an error event, any other with the connection."""
        reply = phase.reply
        phase.endpoint.metrics.broken.value += 1
        self._trace_ending("broken", str(response))
        self._count_part(reply)
        is_shown = reply.break_off(self.head.protocol.error_event(response))
        self._end()
        if is_shown:
            self._client.done(keep=reply.keep_alive)
        else:
            self._client.abort()

    # The end

    def _complete(self, phase: AtReplica, reported: ReportedUsage, ended_s: float) -> None:
        gateway, endpoint, served = self._gateway, phase.endpoint, self._served
        assert served is not None
        if endpoint.driven and isinstance(phase.call, DriverCall):
            reported = phase.call.tokens or reported
        gateway.accounting.add(
            (
                self._number, served, endpoint, phase.outstanding_before, phase.pick, self._status, self._key.id,
                self.head.path, self._began_s, self._first_byte_s, ended_s, self._trace,
            ),
            reported,
        )  # fmt: skip
        self._phase = ENDED
        gateway.inflight.end(endpoint)
        self._client.done(keep=self.keep_alive)

    def _count_part(self, reply: Reply) -> None:
        record = self.record(self._gateway.now_s())
        assert record is not None
        self._gateway.accounting.count_part(record, reply.usage(complete=False))

    def _reject(self, response: ErrorResponse) -> None:
        phase = self._phase
        if isinstance(phase, Ended):
            return
        if isinstance(phase, Relaying):
            self._break_off(phase, response)
            return
        self._gateway.metrics.rejections.child(str(response.status), response.code or "").value += 1
        self._status = response.status
        self._trace_ending("refused", str(response))
        self._answer(response.status, response.headers(), self.head.protocol.error_body(response))

    def _answer(self, status: int, headers: Iterable[bytes], body: bytes) -> None:
        """Answers without a replica."""
        lines = (*headers, b"%b%x\r\n" % (self._gateway.last_lines, self._number))
        answer = encode_response(status, lines, body, close=not self.keep_alive)
        self._client.write(answer.removesuffix(body) if self.head.method == b"HEAD" else answer)
        self._end()
        self._client.done(keep=self.keep_alive)

    def cancel(self) -> None:
        """The client is gone. The replica sees its connection end at once."""
        phase = self._phase
        if isinstance(phase, Ended):
            return
        if self._served is not None:
            self._gateway.metrics.disconnects.child(self._served.name).value += 1
            self._trace_ending("left", "the client closed the connection")
        if isinstance(phase, Relaying):
            phase.reply.drop()
            self._count_part(phase.reply)
        self._end()

    def stop(self, response: ErrorResponse) -> None:
        """The gateway ends the request: the frontend stops, or the replica was silent for too long."""
        phase = self._phase
        if isinstance(phase, AtReplica):
            call, phase.call = phase.call, None
            if call is not None:
                call.cancel()
        self._reject(response)

    def _end(self) -> None:
        """Releases what the current phase holds."""
        record = self.record(self._gateway.now_s())
        if record is not None:
            self._gateway.traces.entries.append(record)
        phase, self._phase = self._phase, ENDED
        match phase:
            case AtReplica():
                if phase.call is not None:
                    phase.call.cancel()
                self._gateway.inflight.end(phase.endpoint)
            case Queued():
                phase.waiter.leave()
            case Authenticating() | Resolving() | AwaitingLoad() | Probing():
                if phase.task is not asyncio.current_task():
                    phase.task.cancel()

    # While it is open

    def pause(self) -> None:
        """The client does not read what it was sent."""
        phase = self._phase
        if isinstance(phase, AtReplica) and phase.call is not None:
            phase.call.pause()

    def resume(self) -> None:
        """The client reads again."""
        phase = self._phase
        if isinstance(phase, AtReplica) and phase.call is not None:
            phase.call.resume()

    def tick(self, now_s: float) -> None:
        """Has a silent replica probed, and ends the request when the replica is silent for too long."""
        phase = self._phase
        if not isinstance(phase, AtReplica) or phase.call is None or self._has_progress(now_s):
            return
        limits = self._gateway.limits
        silent_s = now_s - max(self._began_s, self._active_s, self._first_byte_s)
        if silent_s > limits.silence_s:
            self.stop(replica_silent(limits))
        elif silent_s > limits.probe_after_s:
            self._gateway.liveness.suspect(phase.endpoint)

    def _has_progress(self, now_s: float) -> bool:
        """Whether more of the answer arrived since the last call."""
        phase = self._phase
        if not isinstance(phase, AtReplica) or phase.reply is None or not phase.reply.take_moved():
            return False
        self._active_s = phase.endpoint.heard_s = now_s
        return True

    def _model_name(self) -> str:
        return self._served.name if self._served else ""

    # Records

    def _trace_it(self) -> RequestTrace:
        if self._trace is None:
            self._trace = RequestTrace()
        return self._trace

    def _trace_ending(self, state: str, text: str) -> None:
        trace = self._trace_it()
        trace.state, trace.ending = state, text
        if trace.queued_since_s and trace.queued_s is None:
            trace.queued_s = self._gateway.now_s() - trace.queued_since_s

    def record(self, ended_s: float = 0.0) -> RequestRecord | None:
        """The request as it is now. None before its model is known."""
        if self._served is None:
            return None
        attempt: AtReplica | FailedAttempt | None = None
        if isinstance(self._phase, AtReplica):
            attempt = self._phase
        elif self._trace is not None and self._trace.failures:
            attempt = self._trace.failures[-1]
        return RequestRecord(
            number=self._number,
            served=self._served,
            endpoint=attempt.endpoint if attempt is not None else None,
            outstanding_before=attempt.outstanding_before if attempt is not None else 0,
            pick=attempt.pick if attempt is not None else None,
            status=self._status,
            key_id=self._key.id,
            path=self.head.path,
            began_s=self._began_s,
            first_byte_s=self._first_byte_s,
            ended_s=ended_s,
            trace=self._trace,
        )
