"""One request through the gateway: authentication, routing, the attempts at replicas, and the answer.

`phases.py` has the phases and the transitions between them. While everything is in memory, plain calls move a request
on. A task runs only in phases that wait: for the store, a load or a probe. Every path ends in `_complete` or `_end`,
once, and both return the lease on the replica.

The warm path is `start`, `_route`, `_place`, `_send`, `on_answer` and `_complete`. It is written for speed, the rest
for reading. `queueing.py` has the queue, `failover.py` the decisions after a failure, `reply.py` the way of an answer's
bytes to the client, and the client's own form of requests and answers is behind `client_protocol.py`."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec

import structlog

from corral.core.access.key_limits import LimitsInForce
from corral.core.access.key_meter import METER, MeteredRequest, Refusal
from corral.core.access.token_estimate import estimate_prompt
from corral.core.errors import CorralError
from corral.core.replicas.public_routes import TargetState
from corral.frontend.gateway.attached import CHAT, MESSAGES, NAMED_ANSWERS, VERSION_LINE, AttachedTarget
from corral.frontend.gateway.authenticate import authenticate
from corral.frontend.gateway.await_load import load_wait_s, wait_until_loaded
from corral.frontend.gateway.continuation.continuation import (
    CONTINUATIONS_MAX,
    NO_CONTINUATION_HEADER,
    Continuation,
    TokenCounter,
)
from corral.frontend.gateway.continuation.forms import FORMS
from corral.frontend.gateway.continuation.said import ChatSaid, Said, SaidReader
from corral.frontend.gateway.driver_call import DriverCall
from corral.frontend.gateway.drivers import DriverRequest
from corral.frontend.gateway.endpoints import CHOSEN, Endpoint, PickFields, ServedModel
from corral.frontend.gateway.error_responses import (
    BUSY,
    STOPPING,
    ErrorResponse,
    error_response_of,
    incomplete,
    internal_error,
    looped,
    model_removed,
    no_embeddings,
    queue_timeout,
    replica_silent,
    stopping,
)
from corral.frontend.gateway.failover import (
    UNSUPPORTED_STATUSES,
    Failures,
    Step,
    Verdict,
    is_retried,
    judge_error,
    next_step,
    record_error_answer,
)
from corral.frontend.gateway.keys import NO_AUTH, ClientKey
from corral.frontend.gateway.limit_answers import allowance_after, allowance_of, over_limit
from corral.frontend.gateway.load_notices import EVENTS, NOTIFIED_PATHS, load_notice
from corral.frontend.gateway.model_list import unknown_model
from corral.frontend.gateway.peek import Peek
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
from corral.frontend.gateway.protocols.replica_errors import read_error
from corral.frontend.gateway.protocols.translation import (
    AnswerTranslator,
    CallFacts,
    Translated,
    TranslatedReply,
    Translation,
    translated_headers,
)
from corral.frontend.gateway.protocols.upstream_answers import AdaptedAnswer, RenamedAnswer, SameForm
from corral.frontend.gateway.protocols.upstream_messages import begin_messages
from corral.frontend.gateway.public_routes import RoutePlan, state_of_target
from corral.frontend.gateway.queueing import WEIGHTS, join_queue, make_place
from corral.frontend.gateway.reply import ClientConnection, Reply, ReplyHead, encode_response
from corral.frontend.gateway.request_head import RequestHead
from corral.frontend.gateway.request_trace import FailedAttempt, RequestRecord, RequestTrace
from corral.frontend.gateway.token_usage import PROMPT_MARK, ReportedUsage, cut_usage, with_prompt
from corral.frontend.gateway.unsupported_endpoint import UnsupportedReply, explain_unsupported, unsupported
from corral.frontend.gateway.upstream.calls import Failure, FailureKind, Headers, ResponseSink

if TYPE_CHECKING:
    from corral.frontend.gateway.gateway import Gateway

log = structlog.get_logger()
P = ParamSpec("P")

PREFIX_BYTES = 1024
PROBE_WITHIN_S = 2.0
LINES_KEPT_S = 0.01
"""How long the answers to a key's concurrent requests repeat what its limits allow. A client that sends one request
after the other always reads what is left after it."""
_NO_HINT = (b"", "")
_NOT_BEGUN = (b"", b":")
"""How data begins that may not be the answer yet: a head alone, and the comments that keep a stream of events alive."""
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
    _reader: SaidReader | None = None
    """Reads what a stream says, for the replica that may have to continue it."""
    _opened: Reply | None = None
    """An answer that has begun, while no replica gives it: the one that did has failed."""
    _continued: Continuation | None = None
    """Set once the rest of the answer is another replica's."""
    _continuations = 0
    _metered: MeteredRequest | None = None
    """Until what the request used is known; only for keys with limits."""
    _own_lines = b""
    """Header lines of the answer: what the key's limits allow, and where a route led."""
    _plan: RoutePlan | None = None
    """Set for a request whose model is a public route."""
    _peek: Peek | None = None
    _translated: Translated | None = None
    """Set while a replica has the request that does not speak the client's protocol."""
    _adapted: AdaptedAnswer | None = None
    """Set while an attached server has it whose answers differ in form from those of replicas."""

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
        if self._gateway.is_stopping:
            self.keep_alive = False
            self._reject(stopping())
            return
        if self.head.hops and not self.head.is_call:  # a health probe, which may have no key for us
            self._own_lines = self._gateway.frontend_line
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
            self.on_crash(error)

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
                body = head.protocol.answer_locally(head, table, key, self.body)
                self._answer(200, (b"content-type: application/json\r\n",), body)
                return
            peek = head.read_call(self.body)
            name = peek.model
            served = table.by_name.get(name)
            routed = table.public.get(name) if table.public else None
            if served is None and routed is None and name and not is_table_fresh:
                self._wait_in(Resolving, self._resolve(key))
                return
            if routed is not None and (key.models is None or name in key.models):
                served = routed.targets[0] if routed.targets else None
            else:  # a key for a model only gets the model, also by an alias that a route has taken
                routed = None
            if served is None or (routed is None and key.models is not None and served.name not in key.models):
                raise unknown_model(table, key, name)
            if peek.__class__ is not Peek:
                local = peek.answer_locally(self._gateway.clock.now_ms())
                if local is not None:
                    self._answer(200, (b"content-type: application/json\r\n",), local)
                    return
            self._served = served
            self._peek = peek
            if peek.stream:
                self._stream = True
            if key.limits is not None:
                self._admit(key, key.limits, peek)
            if routed is not None:
                self._plan = routed.plan(head.session, self._own_lines, self._gateway.draw)
                self._trace_it().route = name
            elif served.name != name:
                self.body = head.protocol.with_model(head, self.body, served.name)
            self._place(served)
        except ErrorResponse as response:
            self._reject(response)
        except CorralError as error:
            self._reject(error_response_of(error))
        except Exception as error:  # noqa: BLE001  it is logged
            self.on_crash(error)

    async def _resolve(self, key: ClientKey) -> None:
        """Another frontend may just have added the model."""
        await self._gateway.table.catch_up()
        self._phase = ROUTING
        self._route(key, is_table_fresh=True)

    def _admit(self, key: ClientKey, limits: LimitsInForce, peek: Peek) -> None:
        """Raises ErrorResponse."""
        gateway, head, now_s = self._gateway, self.head, self._began_s
        found = gateway.meters.admit(key.id or "", limits, self.body, peek.stated_output, head.is_form, now_s)
        if isinstance(found, Refusal):
            raise self._over_limit(key, limits, found)
        self._metered = found
        meter = found[METER]
        if meter.open == 1 or now_s >= meter.lines_until_s or meter.lines_of is not head.protocol:
            meter.lines = head.protocol.limit_lines(allowance_of(limits, meter), gateway.clock)
            meter.lines_of, meter.lines_until_s = head.protocol, now_s + LINES_KEPT_S
        self._own_lines = meter.lines

    def _over_limit(self, key: ClientKey, limits: LimitsInForce, refusal: Refusal) -> ErrorResponse:
        gateway, protocol = self._gateway, self.head.protocol
        gateway.metrics.limited.child(refusal.kind.value).value += 1
        meter = gateway.meters.find(key.id or "")
        assert meter is not None
        allowance = allowance_after(refusal, limits, meter)
        return over_limit(key.name, refusal, protocol.limit_lines(allowance, gateway.clock))

    def _settle(self, metered: MeteredRequest, now_s: float) -> MeteredRequest | None:
        """For an answer, complete or in part: whether the key's limits count what it reports in place of the
        estimate."""
        self._metered = None
        if self._status >= 400:
            self._gateway.meters.abandon(metered, now_s, was_sent=False)
            return None
        meter = metered[METER]
        meter.open -= 1
        if not meter.unpublished:
            self._gateway.meters.note_changed(meter)
        return metered

    # Placement: at a replica, in the queue, or waiting for a load

    def _place(self, served: ServedModel, *, has_turn: bool = False) -> None:
        """`has_turn`: the request need not wait behind the queue. Raises ErrorResponse."""
        if self._plan is not None and self._continued is None:
            # The rest of an answer comes from the model that began it.
            chosen = self._follow(self._plan, served, has_turn=has_turn)
            has_turn = has_turn and chosen is served
            served = chosen
        endpoints, gateway, failures = served.endpoints, self._gateway, self._failures
        if not endpoints:
            self._check_kept(served)
            self._join_load(served)
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
                and not served.is_partial
                and not self.head.hops
                and only.outstanding < only.limit
                and only.avoid_until_s <= now_s
            ):
                self._send(only, None)
                return
            excluded = failures.excluded if failures is not None else ()
            if self._continued is not None and self._continued.has_text:
                excluded += tuple(endpoint for endpoint in endpoints if not endpoint.replica.continuation)
            if served.is_partial or self.head.hops:
                excluded += self._without_path(served)
            avoided = served.avoided_by(self._key.id or "", now_s) if served.has_suspects else ()
            pick = served.pick(excluded + avoided, *self._hint(served), now_s, gateway.draw)
            if pick is None and avoided:
                pick = served.pick(excluded, *self._hint(served), now_s, gateway.draw)
            if pick is not None:
                self._send(pick[CHOSEN], pick)
                return
        self._queue(served)

    def _follow(self, plan: RoutePlan, current: ServedModel, *, has_turn: bool) -> ServedModel:
        """The model of the route that gets the request. `has_turn`: at the current one."""
        gateway, head = self._gateway, self.head
        now_s = gateway.now_s()

        def state_of(served: ServedModel) -> TargetState:
            return self._state_of(served, now_s, has_turn=has_turn and served is current)

        served = self._served = plan.choose(state_of)
        if plan.named != served.name:
            self.body = head.protocol.with_model(head, self.body, served.name)
            plan.named = served.name
        self._own_lines = plan.header_lines(served)
        self._trace_it().skipped = plan.skipped
        for preferred, state in plan.skipped:
            if state is TargetState.AWAY and preferred not in plan.failed:
                gateway.load_in_background(preferred)
        return served

    def _state_of(self, served: ServedModel, now_s: float, *, has_turn: bool = False) -> TargetState:
        excluded = self._failures.excluded if self._failures is not None else ()
        lacking = self._lacking_path(served) if served.is_partial or self.head.hops else ()
        avoided = served.avoided_by(self._key.id or "", now_s) if served.has_suspects else ()
        return state_of_target(
            served, excluded + lacking, avoided=avoided, without_path=len(lacking), now_s=now_s, has_turn=has_turn
        )

    def _leave_for_another(self, plan: RoutePlan, queued: Queued, now_s: float) -> None:
        """While it waits at one model of its route, another may become free."""
        others = (served for served in plan.targets if served is not self._served and served not in plan.failed)
        if any(self._state_of(served, now_s) is TargetState.FREE for served in others) and queued.waiter.leave():
            self._leave_queue()
            self._place_again(has_turn=False)

    def _lacking_path(self, served: ServedModel) -> tuple[Endpoint, ...]:
        """The endpoints that cannot answer this request, whatever their state."""
        head, is_continued = self.head, self._continued is not None
        path = head.path if head.translation is None else head.translation.path
        return tuple(
            endpoint
            for endpoint in served.endpoints
            if (attached := endpoint.attached) is not None
            and (
                (is_continued and attached.is_partial)
                or not attached.has(head.path, path)
                or (head.hops and attached.has_had(head.hops))
            )
        )

    def _without_path(self, served: ServedModel) -> tuple[Endpoint, ...]:
        """As `_lacking_path`. Raises ErrorResponse if no endpoint can."""
        found = self._lacking_path(served)
        if len(found) == len(served.endpoints) and self._continued is None:
            if any(one.attached is not None and one.attached.has_had(self.head.hops) for one in found):
                raise looped(served.name)
            raise unsupported(served.name, self.head.path.decode("latin-1"))
        return found

    def _hint(self, served: ServedModel) -> tuple[bytes, str]:
        """What related requests have in common, and the name of that rule."""
        if self.head.session:
            return self.head.session, "session"
        return (self.body[:PREFIX_BYTES], "prefix") if served.has_prefix_affinity else _NO_HINT

    def _queue(self, served: ServedModel) -> None:
        self._check_kept(served)
        gateway, trace, key, peek = self._gateway, self._trace_it(), self._key, self._peek
        waiter = join_queue(
            served,
            self,
            key_id=key.id or "",
            priority=key.priority,
            body=self.body,
            is_form=self.head.is_form,
            stated=peek.stated_output if peek is not None else None,
            trace=trace,
            limits=gateway.limits,
            now_s=gateway.now_s(),
        )
        self._phase = Queued(waiter)

    def on_turn(self) -> None:
        """The request was taken from the queue: a replica has capacity."""
        self._leave_queue().has_turn = True
        self._place_again()

    @property
    def has_begun(self) -> bool:
        """Whether a replica has begun its answer."""
        return self._opened is not None and bool(self._trace_it().failures)

    def on_surplus(self, response: ErrorResponse) -> None:
        """The request was taken from a full queue, because its key has too many there."""
        if isinstance(self._phase, Queued):
            self._leave_queue()
        self._reject(response)

    def on_queue_timeout(self) -> None:
        """The request waited as long as it may, and was taken from the queue."""
        trace, failures = self._leave_queue(), self._failures
        if failures is not None and failures.unreachable:
            self._reject(failures.error(self._model_name()))
        else:
            self._reject(queue_timeout(self._model_name(), trace.position, self._gateway.limits))

    def on_model_removed(self) -> None:
        """Its model was deleted or disabled while it waited, and it was taken from the queue if it was there."""
        phase, served = self._phase, self._served
        if served is None or not isinstance(phase, (Queued, AwaitingLoad)):
            return
        if isinstance(phase, Queued):
            self._leave_queue()
        else:
            phase.task.cancel()
            self._phase = ROUTING
        if self._continued is None:
            self._may_fall_back(served)
        self._place_again(has_turn=False)

    def _check_kept(self, served: ServedModel) -> None:
        """Nobody serves a queue of a model that is no longer in the table. Raises ErrorResponse."""
        if served.is_removed and self.has_begun and self._failures is not None:
            raise incomplete(self._failures.latest, "its model was deleted or disabled")
        if served.is_removed:
            raise model_removed(self._public_name())

    def _leave_queue(self) -> RequestTrace:
        assert isinstance(self._phase, Queued)
        waited_s = self._gateway.now_s() - self._phase.waiter.since_s
        self._gateway.metrics.queue_wait.child(self._model_name()).observe(waited_s)
        self._phase = ROUTING
        trace = self._trace_it()
        trace.waited_s += waited_s
        trace.queued_s = (trace.queued_s or 0.0) + waited_s
        return trace

    def _place_again(self, *, has_turn: bool = True) -> None:
        """The request has its turn: it waited for it, or had it before a replica failed."""
        if self._served is None:
            return
        try:
            self._place(self._served, has_turn=has_turn)
        except ErrorResponse as response:
            self._reject(response)

    def _join_load(self, served: ServedModel) -> None:
        """Raises ErrorResponse."""
        key, limits = self._key, self._gateway.limits
        key_id, weight = key.id or "", WEIGHTS[key.priority]
        if served.loading.length >= limits.queue and not self.has_begun:
            why = f"{served.name!r} is being loaded"
            make_place(served.loading, key_id, weight, owner_of=lambda one: one, why=why, limits=limits)
        served.loading.put(key_id, self, weight=weight)

    async def _load(self, served: ServedModel) -> None:
        gateway = self._gateway
        within_s = load_wait_s(self.head.headers, max_s=gateway.limits.load_wait_s)
        try:
            try:
                await wait_until_loaded(gateway.loads, gateway.table, served, within_s=within_s)
            except CorralError:
                if not self._may_fall_back(served):
                    raise
            self._phase = ROUTING
            self._trace_it().load_s = gateway.now_s() - self._began_s
            self._place(served)
        finally:
            served.loading.remove(self._key.id or "", self)

    def _may_fall_back(self, served: ServedModel) -> bool:
        """After a load that failed: whether another model of the route gets the request."""
        plan = self._plan
        if plan is None:
            return False
        plan.failed.add(served)
        excluded = self._failures.excluded if self._failures is not None else ()
        return any(
            other not in plan.failed and not (other.endpoints and other.have_all_failed(excluded))
            for other in plan.targets
        )

    def _notify_of_load(self, now_s: float) -> None:
        gateway, every_s, served = self._gateway, self._gateway.limits.load_notice_s, self._served
        if every_s is None or served is None or not self._stream or self.head.path not in NOTIFIED_PATHS:
            return
        if now_s - max(self._began_s, self._active_s) < every_s:
            return
        self._active_s = now_s
        if self._opened is None:
            self._status = 200
            more = b"%b%b%x\r\n" % (self._own_lines, gateway.last_lines, self._number)
            head, http11 = ReplyHead(200, EVENTS), self.head.http11
            self._opened = Reply(self._client, head, more, http11=http11, keep_alive=self.keep_alive)
        self._opened.add_comment(load_notice(served.name, gateway.loads.describe(served.name)))

    # Sending

    def _send(self, endpoint: Endpoint, pick: PickFields | None) -> None:
        """Raises ErrorResponse."""
        gateway, head, body = self._gateway, self.head, self.body
        opening = head.opening
        if self._continued is not None:
            pass  # the request for the rest of an answer follows from what the client has of it
        elif head.translation is not None:
            translated = self._translated = self._translate(head.translation, endpoint)
            if translated is not None:
                opening, body = translated.opening, translated.body
        if endpoint.attached is not None and self._continued is None:
            opening, body = self._adapt(endpoint.attached, body)
        elif self._adapted is not None:
            self._adapted = None
        sent = self._phase = Sent()
        sent.endpoint = endpoint
        sent.outstanding_before = endpoint.outstanding
        sent.pick = pick
        sent.call = sent.reply = None
        if self._trace is not None:
            self._active_s = self._trace.sent_s = gateway.now_s()
            self._trace.has_turn = False
        gateway.inflight.begin(endpoint)
        if endpoint.driven:
            self._call_driver(sent)
            return
        if self._continued is not None:
            self._request_rest(sent, self._continued)
            return
        request = b"%b%b%b%d\r\n\r\n%b" % (opening, endpoint.head, head.sent, len(body), body)
        sent.call = endpoint.link.send(request, self)

    def _translate(self, translation: Translation, endpoint: Endpoint) -> Translated | None:
        """None: the replica speaks the client's protocol itself."""
        if self.head.path in endpoint.speaks:
            return None
        try:
            return Translated(translation, self.body, self._facts())
        except CorralError as error:
            raise error_response_of(error) from None

    def _adapt(self, attached: AttachedTarget, body: bytes) -> tuple[bytes, bytes]:
        """The request line and the body for an attached server. Raises ErrorResponse."""
        head, translated = self.head, self._translated
        path = head.path if translated is None else translated.path
        self._adapted = None
        try:
            if attached.is_partial and path == CHAT:
                inner: AnswerTranslator = SameForm() if translated is None else translated.answer
                name = self._public_name()
                body, answer = begin_messages(body, model=attached.model, public=name, facts=self._facts())
                self._adapted = AdaptedAnswer(answer, inner)
                path = MESSAGES
            else:
                form_type = head.content_type if translated is None and head.is_form else b""
                body = attached.rename(body, form_type=form_type)
                if attached.model and translated is None and path in NAMED_ANSWERS:
                    self._adapted = AdaptedAnswer(RenamedAnswer(self._public_name()), SameForm())
        except CorralError as error:
            raise error_response_of(error) from None
        opening = attached.opening(path, head.hops, method=head.method)
        if attached.is_partial and b"anthropic-version" not in head.headers:
            opening += VERSION_LINE
        return opening, body

    def _public_name(self) -> str:
        """The model's name as the client wrote it."""
        return self._peek.model if self._peek is not None else self._model_name()

    def _facts(self) -> CallFacts:
        gateway, trace = self._gateway, self._trace
        return CallFacts(
            id=f"{gateway.traces.prefix}{self._number:x}",
            now_ms=gateway.clock.now_ms(),
            now_s=self._began_s,
            load_s=(trace.load_s or 0.0) if trace is not None else 0.0,
        )

    def _call_driver(self, sent: Sent) -> None:
        assert self._served is not None
        replica = sent.endpoint.replica
        driver = self._gateway.drivers.get(replica.protocol)
        if driver is None:
            self._fail(sent, f"this frontend has no driver for the protocol {replica.protocol!r}", unreachable=False)
            return
        sent_as = self._continued or self._translated
        request = DriverRequest(
            path=(self.head.path if sent_as is None else sent_as.path).decode("latin-1"),
            model=self._served.name,
            route=self._served.route,
            stream=self._stream,
            content_type=self.head.content_type.decode("latin-1"),
            body=self._driver_body(),
        )
        sent.call = DriverCall(self, self._gateway.spawn, driver, request, replica)

    def _driver_body(self) -> bytes:
        if self._continued is not None:
            return self._continued.body("") or b""  # without text: a driver cannot continue one
        return self.body if self._translated is None else self._translated.body

    # The answer

    def on_answer(self, status: int, headers: Headers, data: bytes, last: bool) -> None:
        gateway, sent = self._gateway, self._phase
        assert sent.__class__ is Sent
        if self._opened is not None:
            self._go_on(sent, self._opened, status, headers, data, last)
            return
        endpoint = sent.endpoint
        now_s = endpoint.heard_s = gateway.now_s()
        if last or data[:1] not in _NOT_BEGUN or _has_more_than_comments(data):
            self._first_byte_s = now_s
        else:
            self._first_byte_s, self._active_s = 0.0, now_s
        if status >= 300 and self._handles_error(sent, status, headers, data, last):
            return
        if endpoint.avoid_until_s and status < 500:
            endpoint.record_success()
        self._status = status
        trace = self._trace
        is_usual = (
            self.head.is_relayed and self.keep_alive and (trace is None or not trace.position) and self._adapted is None
        )
        if last and is_usual and headers is endpoint.repeated:
            usage = cut_usage(data)
            self._client.write(
                b"%b%b%b%x\r\ncontent-length: %d\r\n\r\n%b"
                % (endpoint.repeated_head, self._own_lines, gateway.last_lines, self._number, len(data), data)
            )
            self._complete(sent, usage, now_s)
            return
        head, translation = self._reply_head(status, headers)
        shown = endpoint.node_head if gateway.limits.show_node else b""
        head.lines += shown
        if head.is_json and last and status == 200 and translation is None:
            endpoint.repeated, endpoint.repeated_head = headers, head.lines
        more = b"%b%b%x\r\n" % (self._own_lines, gateway.last_lines, self._number)
        if not shown and self._key.admin and self.head.is_from_corral:
            more += endpoint.node_head
        if trace is not None and trace.position:
            more += b"x-corral-queue-position: %d\r\n" % trace.position
        reply = sent.reply = self._make_reply(head, more)
        self.on_data(data, last)
        if self._first_byte_s:
            self._relay_chunks(reply)
        if self._client.is_slow:
            self.pause()

    def _translator(self) -> AnswerTranslator | None:
        """What makes the replica's answer the client's; None: it is relayed as it is."""
        if self._adapted is not None:
            return self._adapted
        return self._translated.answer if self._translated is not None else None

    def _reply_head(self, status: int, headers: Headers) -> tuple[ReplyHead, AnswerTranslator | None]:
        answer = self._translator()
        return ReplyHead(status, headers if answer is None else translated_headers(headers, answer)), answer

    def _make_reply(self, head: ReplyHead, more: bytes) -> Reply:
        protocol, answer, http11 = self.head.protocol, self._translator(), self.head.http11
        if answer is None:
            return protocol.make_reply(self._client, head, more, http11=http11, keep_alive=self.keep_alive)
        # An adapted answer reads its own events, because only it has them in OpenAI's form.
        reader = self._reader = ChatSaid() if self._adapted is None else self._adapted.reader
        return TranslatedReply(
            self._client,
            head,
            more,
            http11=http11,
            keep_alive=self.keep_alive,
            protocol=protocol,
            path=self.head.path,
            answer=answer,
            now_s=self._gateway.now_s,
            read=reader.read_event if self._stream and self._adapted is None else None,
        )

    def on_data(self, data: bytes, last: bool) -> None:
        phase = self._phase
        assert isinstance(phase, AtReplica)
        reply = phase.reply
        assert reply is not None
        reply.put(data, last=last)
        if reply.opened and phase.__class__ is Sent:
            phase = self._phase = Relaying(phase, reply)
        if not self._first_byte_s and (last or data[:1] not in _NOT_BEGUN or _has_more_than_comments(data)):
            self._first_byte_s = self._gateway.now_s()
            self._relay_chunks(reply)
        if last:
            self.keep_alive = reply.keep_alive
            self._complete(phase, reply.usage(complete=True), self._gateway.now_s())

    def _relay_chunks(self, reply: Reply) -> None:
        """From the first token on, which the gateway must see to know when it came."""
        phase, relay = self._phase, reply.relay
        if relay is None:
            return
        form = FORMS.get(self.head.path)
        if form is not None:
            self._reader = relay.reader = form.reader()
        if reply.is_chunked and isinstance(phase, AtReplica) and phase.call is not None:
            phase.call.relay_chunks(relay)

    def _handles_error(self, sent: Sent, status: int, headers: Headers, data: bytes, last: bool) -> bool:
        """Whether the client does not get the replica's error, or redirect, as it is."""
        if status < 400 and sent.endpoint.attached is None:
            return False
        verdict = self._judge_error(sent, status)
        if self._passes_on(sent, verdict, status, headers):
            return True
        match verdict:
            case Verdict.RELAY if not self._has_own_errors():
                return False
            case Verdict.NO_EMBEDDINGS:
                # The backend's own message says how to start it, which is not the client's task.
                self._reject(no_embeddings(self._model_name()))
            case _:
                self._status = status
                sent.reply = self._hold_error(sent, status, headers)
                self.on_data(data, last)
        return True

    def _judge_error(self, sent: Sent, status: int) -> Verdict:
        served, plan = self._served, self._plan
        assert served is not None
        excluded = self._failures.excluded if self._failures is not None else ()
        path = self.head.path if self._translated is None else self._translated.path
        has_fallback = plan is not None and self._continued is None and plan.has_other(served, excluded)
        return judge_error(status, path, sent.endpoint, served, excluded, has_fallback=has_fallback)

    def _passes_on(self, sent: Sent, verdict: Verdict, status: int, headers: Headers) -> bool:
        """Ends the attempt where another replica should get the request, or nobody may see the answer."""
        match verdict:
            case Verdict.WRONG_PROCESS:
                text = "another process uses its address: it rejected the replica's token"
                self._give_up(sent, text, unreachable=True)
            case Verdict.REJECTED_KEY:
                self._give_up(sent, "it rejected its API key")
            case Verdict.REDIRECT:
                self._give_up(sent, f"it redirects to another address (status {status}), which is not followed")
            case Verdict.RETRY:
                self._give_up_on(sent, status, headers)
            case Verdict.ASK_ANOTHER:
                self._give_up(sent, f"it answered with status {status}", is_fault=False)
            case Verdict.NO_EMBEDDINGS | Verdict.HOLD | Verdict.RELAY:
                return False
        return True

    def _hold_error(self, sent: Sent, status: int, headers: Headers) -> UnsupportedReply:
        shown = sent.endpoint.node_head if self._gateway.limits.show_node else b""
        return UnsupportedReply(
            self._client,
            ReplyHead(status, headers),
            b"%b%b%b%x\r\n" % (shown, self._own_lines, self._gateway.last_lines, self._number),
            http11=self.head.http11,
            keep_alive=self.keep_alive,
            protocol=self.head.protocol,
            explain=self._explain_error(status),
        )

    def _has_own_errors(self) -> bool:
        return self._translator() is not None or self.head.protocol.has_own_errors

    def _explain_error(self, status: int) -> Callable[[bytes], ErrorResponse | None]:
        model, path = self._model_name(), self.head.path.decode("latin-1")

        def explain(body: bytes) -> ErrorResponse | None:
            response = explain_unsupported(model, path, status, body) if status in UNSUPPORTED_STATUSES else None
            if response is None and self._has_own_errors():
                response = read_error(status, body)
            if response is not None:
                self._status = response.status
            return response

        return explain

    # Failures

    def on_failure(self, failure: Failure) -> None:
        phase = self._phase
        assert isinstance(phase, AtReplica)
        self._fail(phase, failure.text, unreachable=failure.kind is FailureKind.UNREACHABLE)

    def _give_up(self, phase: AtReplica, text: str, *, unreachable: bool = False, is_fault: bool = True) -> None:
        """The gateway ends the attempt."""
        if phase.call is not None:
            phase.call.cancel()
        self._fail(phase, text, unreachable=unreachable, is_fault=is_fault)

    def _give_up_on(self, sent: Sent, status: int, headers: Headers) -> None:
        key_id, now_s = self._key.id, self._gateway.now_s()
        record_error_answer(sent.endpoint, status, headers, key_id=key_id, request=self.body, now_s=now_s)
        self._give_up(sent, f"it answered with status {status}", is_fault=False)

    def _fail(self, phase: AtReplica, text: str, *, unreachable: bool, is_fault: bool = True) -> None:
        """`is_fault`: other requests should avoid the replica."""
        endpoint, gateway = phase.endpoint, self._gateway
        if is_fault:
            endpoint.record_failure(gateway.now_s())
        endpoint.metrics.failures.value += 1
        log.info("replica.failed_request", replica=endpoint.replica.id, model=self._model_name(), error=text)
        failures = self._failures = self._failures or Failures()
        failures.add(endpoint, text, unreachable=unreachable)
        self._trace_it().failures.append(FailedAttempt(endpoint, phase.outstanding_before, phase.pick, text))
        phase.call = None
        gateway.table.notify()
        if isinstance(phase, Relaying) and not self._continue(phase, failures):
            return
        gateway.accounting.count_failure(endpoint)
        self._phase = ROUTING
        gateway.inflight.end(endpoint)
        self._place_again()

    # Continuing an answer at another replica

    def _continue(self, phase: Relaying, failures: Failures) -> bool:
        """False: the answer has ended."""
        end = self._missing_end(phase)
        if end is not None:
            phase.reply.drop_tail()
            self.on_data(end, True)
            return False
        plan = self._plan_rest(phase)
        if isinstance(plan, str):
            self._break_off(phase, incomplete(failures.latest, plan))
            return False
        self._continued = plan
        self._opened = phase.reply
        self._trace_it().waited_s = 0.0
        return True

    def _missing_end(self, phase: Relaying) -> bytes | None:
        """What ends the answer, if the client has all that it says. None: more is missing."""
        reply, reader = phase.reply, self._reader
        if reader is None or not reply.can_go_on():
            return None
        relay = reply.relay
        if relay is not None:
            relay.fold(keep=0)
            if relay.has_forgotten:
                return None
        if reader.said.is_done or (reader.said.is_whole and relay is None):
            return b""  # of a translated answer, the translation gives the last event
        return FORMS[self.head.path].end if reader.said.is_whole else None

    def _plan_rest(self, phase: Relaying) -> Continuation | str | None:
        """How another replica gives the rest of the answer. None: nothing but its head has reached the client. A text:
        why none can, as a clause."""
        reply, reader = phase.reply, self._reader
        if not reply.can_go_on():
            return "only a stream of events can be"
        if not self._first_byte_s:
            return None
        if NO_CONTINUATION_HEADER in self.head.headers:
            return "the request does not allow it"
        if reader is None or (reply.relay is not None and reply.relay.has_forgotten):
            return f"streams of {self.head.path.decode('latin-1')} cannot be"
        if self._continuations >= CONTINUATIONS_MAX:
            return f"it already was {self._continuations} times"
        if reply.relay is not None:
            reply.relay.fold(keep=0)
        try:
            plan = self._continued.after_failure() if self._continued is not None else self._first_plan(reader.said)
        except CorralError as error:
            return f"the request for its rest cannot be made ({error})"
        return plan.why_not(phase.endpoint, self._served) or plan

    def _first_plan(self, said: Said) -> Continuation:
        """Raises InvalidInput."""
        translated = self._translated
        if translated is not None:
            # An adapted answer gave the client what this translation made of it, so the translation can go on.
            return Continuation(translated.path, translated.body, said, translated.answer)
        form = FORMS[self.head.path]
        return form.resume(self.body, said, self._facts())

    def _request_rest(self, sent: Sent, continued: Continuation) -> None:
        """Counts tokens first, as far as the rest of the answer needs it."""
        endpoint = sent.endpoint
        kind = endpoint.replica.continuation
        sink: ResponseSink = self
        body = continued.count_body(kind)
        if body is not None:
            sink = TokenCounter(partial(self._on_counted, sent, continued), self)
        else:
            body = continued.body(kind)
        if body is None:
            assert self._opened is not None
            self._resume(sent, self._opened, {b"content-type": b"text/event-stream"})
            self.on_data(continued.ending(), True)
            return
        opening = continued.opening
        if endpoint.attached is not None:
            opening = endpoint.attached.opening(continued.path, self.head.hops)
            body = endpoint.attached.rename(body, form_type=b"")
        request = b"%b%b%b%d\r\n\r\n%b" % (opening, endpoint.head, self.head.sent, len(body), body)
        sent.call = endpoint.link.send(request, sink)

    def _on_counted(self, sent: Sent, continued: Continuation, tokens: int | None) -> None:
        sent.call = None
        continued.count(tokens)
        self._request_rest(sent, continued)

    def _go_on(self, sent: Sent, opened: Reply, status: int, headers: Headers, data: bytes, last: bool) -> None:
        """A replica answers a request whose answer another one began."""
        endpoint = sent.endpoint
        endpoint.heard_s = self._active_s = self._gateway.now_s()
        kind = next((value for name, value in headers.items() if name.lower() == b"content-type"), b"")
        if (status >= 400 or (status >= 300 and endpoint.attached is not None)) and self._passes_on(
            sent, self._judge_error(sent, status), status, headers
        ):
            return
        if self._continued is not None and (
            status in (502, 503) or (endpoint.attached is not None and is_retried(status))
        ):
            self._give_up_on(sent, status, headers)
        elif status != 200 or not kind.startswith(b"text/event-stream"):
            self.stop(self._refusal(endpoint, status, data if last else b""))
        else:
            endpoint.record_success()
            self._resume(sent, opened, headers)
            self.on_data(data, last)
            if self._client.is_slow:
                self.pause()

    def _refusal(self, endpoint: Endpoint, status: int, body: bytes) -> ErrorResponse:
        """For a replica that does not answer with a stream, while the client already has the head of one."""
        where = endpoint.described
        if self._continued is not None:
            failed = self._failures.latest if self._failures is not None else "the replica failed"
            return incomplete(failed, f"{where} refused to continue it with status {status}")
        if status >= 400 and body:
            return read_error(status, body)
        return ErrorResponse(502, f"{where} answered with status {status}, not with a stream", code="replica_failed")

    def _resume(self, sent: Sent, opened: Reply, headers: Headers) -> None:
        """From here on, what the replica sends reaches the client as the rest of the answer that it has."""
        continued = self._continued
        if continued is None:
            reply = self._make_reply(self._reply_head(200, headers)[0], b"")
        else:
            reply = TranslatedReply(
                self._client,
                ReplyHead(200, headers),
                b"",
                http11=self.head.http11,
                keep_alive=self.keep_alive,
                protocol=self.head.protocol,
                path=self.head.path,
                answer=continued.answer(),
                now_s=self._gateway.now_s,
            )
            self._continuations += 1
            self._trace_it().continuations += 1
            sent.endpoint.metrics.continued.value += 1
            log.info(
                "answer.continued",
                model=self._model_name(),
                replica=sent.endpoint.replica.id,
                node=sent.endpoint.replica.node_name,
                after_chars=len(continued.said.text),
            )
        reply.adopt(opened)
        self._opened = None
        self._phase = Relaying(sent, reply)

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
        has capacity. So does an answer that has begun, if it can be continued. Others are broken off much later."""
        gateway, served, phase = self._gateway, self._served, self._phase
        if served is None or not isinstance(phase, AtReplica) or phase.endpoint is not endpoint:
            return
        now_s = gateway.now_s()
        excluded = self._failures.excluded if self._failures is not None else ()
        models = self._plan.targets if self._plan is not None else (served,)
        usable = (other for model in models for other in model.endpoints)
        others = (other for other in usable if other is not endpoint and other not in excluded)
        can_move = any(other.has_capacity(now_s) for other in others)
        if isinstance(phase, Relaying):
            if self._has_progress(now_s):
                return
            can_move = (
                unresponsive_s > gateway.limits.unresponsive_s
                or self._missing_end(phase) is not None
                or (can_move and not isinstance(self._plan_rest(phase), str))
            )
        if can_move:
            self._give_up(phase, text)

    def _break_off(self, phase: Relaying, response: ErrorResponse) -> None:
        """Ends an answer that has begun: a stream of events with an error event, any other with the connection."""
        phase.endpoint.metrics.broken.value += 1
        self._count_part(phase.reply, is_error=response.code != STOPPING)
        self._show_end(phase.reply, response)

    def _break_off_opened(self, opened: Reply, response: ErrorResponse) -> None:
        """No other replica gives the rest of the answer."""
        failures = self._trace_it().failures
        if failures:
            failures[-1].endpoint.metrics.broken.value += 1
            self._count_part(opened, is_error=False)  # the failed attempt is counted already
        else:  # only comments reached the client: no replica had the request
            self._gateway.metrics.rejections.child(str(response.status), response.code or "").value += 1
        self._show_end(opened, response)

    def _show_end(self, reply: Reply, response: ErrorResponse) -> None:
        self._trace_ending("broken", str(response))
        is_shown = reply.break_off(reply.error_event(response, self.head.protocol, self.head.path))
        self._end()
        if is_shown:
            self._client.done(keep=reply.keep_alive)
        else:
            self._client.abort()

    # The end

    def _complete(self, phase: AtReplica, reported: ReportedUsage, ended_s: float) -> None:
        """The client has the whole answer."""
        gateway, endpoint, served = self._gateway, phase.endpoint, self._served
        assert served is not None
        try:
            if endpoint.driven and isinstance(phase.call, DriverCall):
                reported = phase.call.tokens or reported
                if phase.reply is None or not phase.reply.is_events:
                    self._first_byte_s = ended_s  # a driver sends the head of an answer before the rest
            if self._status < 400 and (reported.__class__ is tuple or PROMPT_MARK not in reported):
                reported = with_prompt(reported, self.body, is_form=self.head.is_form)
            gateway.accounting.add(
                (
                    self._number, served, endpoint, phase.outstanding_before, phase.pick, self._status, self._key.id,
                    self.head.path, self._began_s, self._first_byte_s, ended_s, self._trace,
                ),
                reported,
                self._settle(self._metered, ended_s) if self._metered is not None else None,
            )  # fmt: skip
            if self._trace is not None:
                self._trace.settle_turn(reported, self._status)
            plan = self._plan
            if plan is not None:
                gateway.metrics.routed.child(plan.route, served.name, plan.fallback_reason).value += 1
        except Exception as error:  # noqa: BLE001  a bug in counting does not concern the client
            self._log_crash(error)
            self._end()
        else:
            self._phase = ENDED
            gateway.inflight.end(endpoint)
        self._client.done(keep=self.keep_alive)

    def _count_part(self, reply: Reply, *, is_error: bool) -> None:
        record = self.record(self._gateway.now_s())
        assert record is not None
        reported = reply.usage(complete=False)
        if self._first_byte_s or isinstance(self._phase, Relaying):  # otherwise the prompt counts where it is answered
            reported = with_prompt(reported, self.body, is_form=self.head.is_form)
        metered = self._settle(self._metered, record.ended_s) if self._metered is not None else None
        self._gateway.accounting.count_part(record, reported, metered, is_error=is_error)
        if self._trace is not None:
            self._trace.settle_turn(reported, self._status)

    def _reject(self, response: ErrorResponse) -> None:
        phase = self._phase
        if isinstance(phase, Ended):
            return
        if isinstance(phase, Relaying):
            self._break_off(phase, response)
            return
        if self._opened is not None:
            self._break_off_opened(self._opened, response)
            return
        self._gateway.metrics.rejections.child(str(response.status), response.code or "").value += 1
        self._status = response.status
        if response.code in BUSY and self._served is not None and self._served.route.retry_after_s is not None:
            response.retry_after_s = self._served.route.retry_after_s
        self._trace_ending("refused", str(response))
        self._answer(response.status, response.headers(), self.head.protocol.error_body(response))

    def _answer(self, status: int, headers: Iterable[bytes], body: bytes) -> None:
        """Answers without a replica."""
        lines = (*headers, b"%b%b%x\r\n" % (self._own_lines, self._gateway.last_lines, self._number))
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
            self._count_part(phase.reply, is_error=False)
        elif self._opened is not None and self._trace_it().failures:
            self._count_part(self._opened, is_error=False)
        elif isinstance(phase, Sent):
            self._count_prompt(phase)
        self._end()

    def _count_prompt(self, sent: Sent) -> None:
        """The client left before it had anything, but the replica may have read the prompt."""
        gateway, metered = self._gateway, self._metered
        prompt = estimate_prompt(self.body, is_form=self.head.is_form)
        gateway.accounting.count_prompt(sent.endpoint, self._key.id, prompt)
        if metered is not None:
            self._metered = None
            gateway.meters.abandon(metered, gateway.now_s(), was_sent=True, prompt=prompt)

    def stop(self, response: ErrorResponse) -> None:
        """The gateway ends the request: the frontend stops, or the replica was silent for too long."""
        phase = self._phase
        if isinstance(phase, AtReplica):
            call, phase.call = phase.call, None
            if call is not None:
                call.cancel()
        self._reject(response)

    def guard(self, step: Callable[P, None], *args: P.args, **more: P.kwargs) -> None:
        """Calls a method of this request for someone who has others to serve too."""
        try:
            step(*args, **more)
        except Exception as error:  # noqa: BLE001  it is logged
            self.on_crash(error)

    def on_crash(self, error: Exception) -> None:
        """A bug in the gateway. The client gets an error or, where that is not possible, its connection ends. The
        replica and the key are free again, and all other requests continue."""
        self._log_crash(error)
        try:
            if self._can_show_error():
                self.stop(internal_error())
                return
        except Exception as another:  # noqa: BLE001  it is logged
            self._log_crash(another)
        phase = self._phase
        is_answered = isinstance(phase, AtReplica) and phase.reply is not None and phase.reply.is_ended
        if not isinstance(phase, Ended):
            try:
                self._end()
            except Exception as another:  # noqa: BLE001  it is logged
                self._log_crash(another)
        if is_answered:
            self._client.done(keep=False)
        else:
            self._client.abort()

    def _log_crash(self, error: Exception) -> None:
        log.error("gateway.request_crashed", model=self._model_name(), exc_info=error)

    def _can_show_error(self) -> bool:
        """Whether the client would read an error as part of the answer to this request."""
        phase = self._phase
        if not isinstance(phase, AtReplica) or phase.reply is None:
            return not isinstance(phase, Ended)
        return not phase.reply.is_ended and (isinstance(phase, Relaying) or not phase.reply.opened)

    def _end(self) -> None:
        """Releases what the current phase holds."""
        phase = self._phase
        try:
            record = self.record(self._gateway.now_s())
            if record is not None:
                self._gateway.traces.entries.append(record)
        finally:
            self._phase = ENDED
            self._leave(phase)
            if self._trace is not None:
                self._trace.forfeit_turn()
            metered, self._metered = self._metered, None
            if metered is not None:
                self._gateway.meters.abandon(metered, self._gateway.now_s(), was_sent=isinstance(phase, AtReplica))

    def _leave(self, phase: Phase) -> None:
        match phase:
            case AtReplica():
                if phase.call is not None:
                    phase.call.cancel()
                self._gateway.inflight.end(phase.endpoint)
            case Queued():
                phase.waiter.leave()
            case Authenticating() | Resolving() | AwaitingLoad() | Probing():
                if self._served is not None:
                    self._served.loading.remove(self._key.id or "", self)
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
        """Has a silent replica probed, and ends the request when the replica is silent for too long. Tells clients of
        streams that they wait for a load."""
        phase = self._phase
        if isinstance(phase, Queued) and self._plan is not None and self._continued is None:
            self._leave_for_another(self._plan, phase, now_s)
            phase = self._phase
        if isinstance(phase, AwaitingLoad) or (self._opened is not None and isinstance(phase, Queued)):
            self._notify_of_load(now_s)
            return
        if not isinstance(phase, AtReplica) or phase.call is None or self._has_progress(now_s):
            return
        limits = self._gateway.limits
        silent_s = now_s - max(self._began_s, self._active_s, self._first_byte_s)
        if silent_s > limits.silence_s:
            if not isinstance(phase, Relaying):
                self._gateway.accounting.count_failure(phase.endpoint)
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
        if isinstance(self._phase, Queued):
            trace.queued_s = (trace.queued_s or 0.0) + self._gateway.now_s() - self._phase.waiter.since_s

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


def _has_more_than_comments(data: bytes) -> bool:
    return any(line and not line.startswith(b":") for line in data.splitlines())
