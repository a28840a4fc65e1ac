"""One small client over nats-py.

It mends what would surprise a caller: a denied request or subscription raises here; a handler never blocks the next
message; replies cannot be read by others; a request ends at once when the connection is lost; a client that the
server threw out (expired or revoked credential) comes back with a new one.
"""

import asyncio
import base64
import itertools
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from corral.bus.credentials import KeyPair
from corral.core.errors import (
    CorralError,
    Forbidden,
    InvalidSetting,
    NoResponders,
    OutcomeUnknown,
    TimedOut,
    TooLarge,
    Unavailable,
)
from corral.core.rate_limit import RateLimiter, TokenBucket
from corral.settings.values import redact_url
from corral.system.cancel_tasks import end_tasks

log = structlog.get_logger()

T = TypeVar("T")

CONNECT_WITHIN_S = 5.0
CONFIRM_WITHIN_S = 5.0
CONFIRM_AGAIN_S = 1.0
# Two pings may stay unanswered, the third is not sent: a frozen server is noticed after 24 s.
PING_EVERY_S = 8.0
PINGS_OUTSTANDING = 2
RECONNECT_WAIT_S = 0.25
IN_TURN_AT_ONCE = 32
FAILURES_LOGGED = TokenBucket(most=10, per_s=1 / 6)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


class BusDenied(Forbidden):
    code = "bus_denied"


@dataclass(frozen=True, slots=True)
class Credentials:
    jwt: str
    key: KeyPair


@dataclass(frozen=True, slots=True)
class BusMessage:
    subject: str
    data: bytes
    reply: str | None = None


Handler = Callable[[BusMessage], Awaitable[bytes | None]]
CredentialsSource = Callable[[], Credentials | None]


@dataclass(slots=True)
class _Service:
    subject: str
    handler: Handler
    concurrency: int
    answers: Callable[[CorralError], bytes] | None
    may_reply: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    servers: tuple[str, ...]
    name: str
    inbox: str
    """What to listen on for replies to our requests; only we may."""
    inbox_for: Callable[[str], str]
    """From the subject of a request to the prefix of its reply address, which lies below `inbox`."""
    credentials: CredentialsSource
    ca_file: Path | None = None
    ping_every_s: float = PING_EVERY_S
    connect_within_s: float = CONNECT_WITHIN_S


def _trust(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # what is no certificate is one too
        raise InvalidSetting(f"bus_ca_file: cannot use {ca_file}: {error.strerror or error}") from error


async def _unless_cancelled(work: Awaitable[T]) -> T:
    """Under nats-py, `wait_for` forgets a cancel that comes in the same moment as what it waits for."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    result = await work
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def _connect(client: Client, options: dict[str, Any], *, within_s: float) -> None:
    """In a task of its own: nats-py tries for ever, and may miss that it was told to end."""
    connecting = asyncio.ensure_future(client.connect(**options))
    try:
        done, _ = await asyncio.wait({connecting}, timeout=within_s)
    finally:
        await end_tasks([connecting])
    if not done:
        raise TimeoutError
    connecting.result()


async def _close(client: Client) -> None:
    """Its way back to the server ends too, which may have missed that it was told to."""
    with suppress(Exception):  # nats-py trips over a client that never was connected
        await client.close()
    if client._reconnection_task is not None:
        await end_tasks([client._reconnection_task])


async def _round_trip(client: Client) -> None:
    """Everything sent before has been taken or refused by the server when this returns.

    Twice, because nats-py writes a ping at once but subscriptions and messages a moment later: the first ping
    overtakes them, the second cannot."""
    async with asyncio.timeout(CONFIRM_WITHIN_S):
        await _unless_cancelled(client.flush())
        await _unless_cancelled(client.flush())


class Bus:
    """Made by `connect_bus`, which owns the tasks started here: they end with its block."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._services: list[_Service] = []
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._pending: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        self._counter = itertools.count(1)
        # Subjects we may not listen on, in lower case: so nats-py hands us the server's words.
        self._denied: set[str] = set()
        self._logged = RateLimiter(FAILURES_LOGGED, keys_most=1024)
        self._unlogged: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._thrown_out = asyncio.Event()
        self._confirmed = False
        self._closing = False
        self._turned_away = False
        self.last_problem = ""

    @property
    def connected(self) -> bool:
        """There is a link, and all we listen on was confirmed on it."""
        return self._client is not None and self._client.is_connected and self._confirmed

    # Connection

    async def open(self) -> None:
        """Connect, or raise Unavailable with the reason."""
        client = Client()
        options: dict[str, Any] = {
            "servers": list(self._options.servers),
            "name": self._options.name,
            "connect_timeout": self._options.connect_within_s,
            "reconnect_time_wait": RECONNECT_WAIT_S,
            "max_reconnect_attempts": -1,
            "ping_interval": self._options.ping_every_s,
            "max_outstanding_pings": PINGS_OUTSTANDING,
            "error_cb": self._on_error,
            "disconnected_cb": self._unless_replaced(client, self._on_disconnected),
            "reconnected_cb": self._unless_replaced(client, self._on_reconnected),
            "closed_cb": self._unless_replaced(client, self._on_closed),
        }
        if self._options.ca_file is not None:
            options["tls"] = _trust(self._options.ca_file)
        if self._options.credentials() is not None:
            # Asked again at every reconnect, so a renewed credential is used from then on.
            options["user_jwt_cb"] = lambda: bytearray(self._current().jwt.encode())
            options["signature_cb"] = lambda nonce: base64.b64encode(self._current().key.sign(nonce.encode()))
        servers = ", ".join(redact_url(server) for server in self._options.servers)
        self._turned_away = False
        try:
            await _connect(client, options, within_s=self._options.connect_within_s)
        except (OSError, TimeoutError, nats.errors.Error, ssl.SSLError) as error:
            why = self.last_problem or str(error) or type(error).__name__
            await _close(client)
            raise Unavailable(self._unconnected(servers, why)) from error
        except asyncio.CancelledError:
            await _close(client)
            raise
        self._client = client
        self.last_problem = ""
        self._denied.clear()
        try:
            await self._listen(f"{self._options.inbox}.>", self._on_reply)
            for service in self._services:
                await self._subscribe(service)
            await self.confirm()
        except BaseException:
            # Not left open: its subscriptions would go on answering beside those of the next one.
            self._client = None
            await _close(client)
            raise
        self._confirmed = True
        if self._keeper is None:
            self._keeper = self._spawn(self._keep_open(), name="bus:keep_open")

    def _unconnected(self, servers: str, why: str) -> str:
        if not self._turned_away:
            return (
                f"cannot connect to the message bus {servers}: {why}. Check that nats-server runs there and that this"
                " machine reaches it."
            )
        if self._options.credentials() is None:
            return f"the message bus {servers} wants credentials, and there are none. On a frontend: bus_account_seed."
        return (
            f"the message bus {servers} does not accept our credential: it was signed with a seed that this nats-server"
            " does not trust, has expired or was revoked. On a frontend, check bus_account_seed; a worker gets its"
            " credential from the frontend."
        )

    def _unless_replaced(self, client: Client, react: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """What a client tells that never became ours, or no longer is, means nothing."""

        async def reaction() -> None:
            if self._client is client:
                await react()

        return reaction

    def _current(self) -> Credentials:
        credentials = self._options.credentials()
        assert credentials is not None, "credentials do not go away while the bus is open"
        return credentials

    async def _keep_open(self) -> None:
        """Come back after the server closed the connection for good: nats-py gives up then, we do not."""
        while True:
            await self._thrown_out.wait()
            for attempt in itertools.count():
                self._thrown_out.clear()
                try:
                    await self.open()
                except CorralError as error:
                    self.last_problem = str(error)
                    log.warning("bus.reconnect_failed", error=str(error), attempt=attempt)
                except Exception as error:
                    self.last_problem = str(error)
                    log.exception("bus.reconnect_crashed", attempt=attempt)
                else:
                    log.info("bus.reconnected")
                    await self._notify()
                    break
                await asyncio.sleep(min(10.0, 0.25 * 2.0 ** min(attempt, 6)))

    async def renew(self) -> None:
        """Reconnect now, with the credential as it is now: before the old one expires, at a moment of our choosing."""
        if self._client is not None and self._client.is_connected:
            await self._client.force_reconnect()

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            with suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(2.0):
                    await self._client.flush()
            await _close(self._client)

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def on_reconnect(self, listener: Callable[[], Awaitable[None]]) -> None:
        self._listeners.append(listener)

    async def confirm(self) -> None:
        """A round trip to the server: every subscription sent before it is now active or was denied."""
        client = self._require()
        try:
            await _round_trip(client)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"the message bus did not confirm within {CONFIRM_WITHIN_S:.0f} s") from error
        wanted = [service.subject for service in self._services] + [f"{self._options.inbox}.>"]
        for subject in wanted:
            if subject.lower() in self._denied:
                raise BusDenied(
                    f"the message bus does not let this process listen on {subject!r}; check its credential"
                )

    def _require(self) -> Client:
        if self._client is None or not self._client.is_connected:
            why = f" ({self.last_problem})" if self.last_problem else ""
            raise Unavailable(f"not connected to the message bus{why}")
        return self._client

    # Sending

    async def publish(self, subject: str, data: bytes, *, confirmed: bool = False) -> None:
        """Send, and forget unless `confirmed`: a round trip later the server has taken it or refused (BusDenied)."""
        client = self._require()
        refusal: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        key = f"publish.{next(self._counter)}"
        if confirmed:
            self._pending[key] = (subject, refusal)
        try:
            await _unless_cancelled(client.publish(subject, data))
            if confirmed:
                await _round_trip(client)
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"a message of {len(data)} bytes is more than the bus takes") from error
        except (nats.errors.Error, TimeoutError) as error:
            if confirmed:
                raise OutcomeUnknown(f"the bus did not confirm what was published on {subject!r}: {error}") from error
            raise Unavailable(f"cannot publish on {subject!r}: {error}") from error
        finally:
            self._pending.pop(key, None)
            answered = refusal.done() and refusal.exception()
        if answered:
            raise answered

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes:
        """One request, one reply. Raises NoResponders (nothing happened), TimedOut or OutcomeUnknown, BusDenied."""
        client = self._require()
        reply = f"{self._options.inbox_for(subject)}.{next(self._counter)}"
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._pending[reply] = (subject, answer)
        try:
            await _unless_cancelled(client.publish(subject, data, reply=reply))
            async with asyncio.timeout(within_s):
                message = await answer
        except TimeoutError:
            raise TimedOut(f"no answer on {subject!r} within {within_s:g} s") from None
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"a request of {len(data)} bytes is more than the bus takes") from error
        except nats.errors.Error as error:
            raise Unavailable(f"cannot send on {subject!r}: {error}") from error
        finally:
            self._pending.pop(reply, None)
        if message.headers and message.headers.get("Status") == "503":
            raise NoResponders(f"nobody listens on {subject!r}")
        return message.data

    # Listening

    async def serve(
        self,
        subject: str,
        handler: Handler,
        *,
        concurrency: int,
        answers: Callable[[CorralError], bytes] | None = None,
        may_reply: Callable[[str], bool] = lambda reply: True,
    ) -> None:
        """Run `handler` for each message in a task of its own, at most `concurrency` at a time; with 1, one after the
        other and without tasks, which for many small messages is several times cheaper.

        A failing handler still answers, through `answers`; without it an error is only logged. A reply address that
        `may_reply` does not accept is not used."""
        service = _Service(subject, handler, concurrency, answers, may_reply)
        self._denied.discard(subject.lower())
        self._services.append(service)
        subscription: Subscription | None = None
        try:
            subscription = await self._subscribe(service)
            await self.confirm()
        except BaseException:
            # Not asked for again at the next reconnect: the caller was told that it does not listen.
            self._services.remove(service)
            if subscription is not None:
                with suppress(nats.errors.Error, ValueError):
                    await subscription.unsubscribe()
            raise

    async def _subscribe(self, service: _Service) -> Subscription:
        if service.concurrency == 1:
            return await self._listen(service.subject, self._in_turn(service))
        limit = asyncio.Semaphore(service.concurrency)

        async def receive(message: Msg) -> None:
            # Waiting here, not in the task, is the back-pressure: nats-py queues and drops beyond its bound.
            await limit.acquire()
            if self._closing:
                return
            task = self._spawn(self._handle(service, message), name=f"bus:{service.subject}")
            task.add_done_callback(lambda _: limit.release())

        return await self._listen(service.subject, receive)

    def _in_turn(self, service: _Service) -> Callable[[Msg], Awaitable[None]]:
        handled = itertools.count(1)

        async def receive(message: Msg) -> None:
            if self._closing:
                return
            await self._handle(service, message)
            if next(handled) % IN_TURN_AT_ONCE == 0:
                await asyncio.sleep(0)  # nats-py hands over all that has arrived without a pause

        return receive

    async def _listen(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Subscription:
        try:
            return await _unless_cancelled(self._require().subscribe(subject, cb=receive))
        except nats.errors.Error as error:
            raise Unavailable(f"cannot listen on {subject!r}: {error}") from error

    async def _handle(self, service: _Service, message: Msg) -> None:
        incoming = BusMessage(message.subject, message.data, message.reply or None)
        answer: bytes | None
        try:
            answer = await service.handler(incoming)
        except CorralError as error:
            self._log_failure(service.subject, error)
            answer = service.answers(error) if service.answers else None
        except Exception as error:
            log.exception("bus.handler_crashed", subject=incoming.subject)
            unexpected = CorralError(
                f"unexpected {type(error).__name__} while handling {incoming.subject!r}; see the log"
            )
            answer = service.answers(unexpected) if service.answers else None
        if answer is None or incoming.reply is None:
            return
        if not service.may_reply(incoming.reply):
            log.warning("bus.reply_refused", subject=incoming.subject, reply=incoming.reply)
            return
        try:
            try:
                await self.publish(incoming.reply, answer)
            except TooLarge as error:
                if service.answers is None:
                    raise
                log.warning("bus.reply_too_large", subject=incoming.subject, error=str(error))
                await self.publish(incoming.reply, service.answers(error))
        except CorralError as error:
            log.warning("bus.reply_lost", subject=incoming.subject, error=str(error))

    def _log_failure(self, subject: str, error: CorralError) -> None:
        """A few lines for each kind of message: whoever sends a million bad ones must not wash all others away."""
        if self._logged.take(subject, asyncio.get_running_loop().time()):
            log.warning("bus.handler_failed", subject=subject, error=str(error), more=self._unlogged.pop(subject, 0))
        else:
            self._unlogged[subject] = self._unlogged.get(subject, 0) + 1

    # What nats-py tells us

    async def _on_reply(self, message: Msg) -> None:
        entry = self._pending.get(message.subject)
        if entry is not None and not entry[1].done():
            entry[1].set_result(message)

    async def _on_error(self, error: Exception) -> None:
        self.last_problem = str(error)
        # Told once; what comes after it, when the server hangs up, may read like a broken network.
        self._turned_away = self._turned_away or "authorization violation" in str(error).lower()
        denied = _DENIED.search(str(error))
        if denied is None:
            log.debug("bus.error", error=str(error))
            return
        kind, subject = denied[1].lower(), denied[2].lower()
        log.warning("bus.denied", kind=kind, subject=subject)
        if kind == "subscription":
            self._denied.add(subject)
        for pending_subject, answer in self._pending.values():
            if kind == "publish" and pending_subject.lower() == subject and not answer.done():
                answer.set_exception(
                    BusDenied(f"the message bus does not let this process publish on {pending_subject!r}")
                )

    async def _on_disconnected(self) -> None:
        self._confirmed = False
        # The next connection is asked anew: it may come with another credential.
        self._denied.clear()
        if self._closing:
            return
        log.warning("bus.disconnected", error=self.last_problem)
        for subject, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"the bus connection was lost while waiting on {subject!r}"))

    async def _on_reconnected(self) -> None:
        self.last_problem = ""
        assert self._client is not None
        self._spawn(self._confirm_until_sure(self._client), name="bus:confirm")

    async def _confirm_until_sure(self, client: Client) -> None:
        """A server that is slow to confirm is asked again; one that denied will not change its mind on this link."""
        while client is self._client and client.is_connected:
            try:
                await self.confirm()
            except BusDenied as error:
                self.last_problem = str(error)
                log.error("bus.not_confirmed", error=str(error))
                return
            except CorralError as error:
                log.warning("bus.not_confirmed", error=str(error))
                await asyncio.sleep(CONFIRM_AGAIN_S)
            else:
                self._confirmed = True
                log.info("bus.reconnected")
                await self._notify()
                return

    async def _on_closed(self) -> None:
        if not self._closing:
            self._thrown_out.set()

    async def _notify(self) -> None:
        for listener in self._listeners:
            try:
                await listener()
            except Exception:
                log.exception("bus.listener_crashed")


@asynccontextmanager
async def connect_bus(options: BusOptions) -> AsyncIterator[Bus]:
    """An open bus; leaving the block stops its handlers and closes it."""
    bus = Bus(options)
    try:
        await bus.open()
        yield bus
    finally:
        await bus.close()
