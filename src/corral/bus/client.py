"""One small client over nats-py.

It changes what would surprise its users: a denied request or subscription raises here; a handler never blocks the next
message; others cannot read replies; a request ends at once when the connection is lost; and after the server has closed
the connection (expired or revoked credential), the client reconnects with a new credential.
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
from corral.core.backoff import Backoff
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
# Two pings may be unanswered; the third is not sent. So a frozen server is detected after 24 s.
PING_EVERY_S = 8.0
PINGS_OUTSTANDING = 2
RECONNECT_WAIT_S = 0.25
REOPEN = Backoff(base_s=0.25, cap_s=10.0)
"""After the server has closed the connection for good, which nats-py does not undo."""
IN_TURN_AT_ONCE = 32
FAILURES_LOGGED = TokenBucket(capacity=10, per_s=1 / 6)
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
    """The subject prefix for replies to our requests; only this process may subscribe to it."""
    inbox_for: Callable[[str], str]
    """Maps the subject of a request to the prefix of its reply address, which is below `inbox`."""
    credentials: CredentialsSource
    ca_file: Path | None = None
    ping_every_s: float = PING_EVERY_S
    connect_within_s: float = CONNECT_WITHIN_S


def _trust(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:  # ssl.SSLError for an invalid certificate is one too
        raise InvalidSetting(f"bus_ca_file: cannot use {ca_file}: {error.strerror or error}") from error


async def _unless_cancelled(work: Awaitable[T]) -> T:
    """Restores a cancellation that nats-py loses when it coincides with the result that its `wait_for` awaits."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    result = await work
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def _connect(client: Client, options: dict[str, Any], *, within_s: float) -> None:
    """In its own task: nats-py retries without end and may miss a cancellation."""
    connecting = asyncio.ensure_future(client.connect(**options))
    try:
        done, _ = await asyncio.wait({connecting}, timeout=within_s)
    finally:
        await end_tasks([connecting])
    if not done:
        raise TimeoutError
    connecting.result()


async def _close(client: Client) -> None:
    """Also ends the reconnection task, which may have missed its cancellation."""
    with suppress(Exception):  # nats-py fails on a client that was never connected
        await client.close()
    if client._reconnection_task is not None:
        await end_tasks([client._reconnection_task])


async def _round_trip(client: Client) -> None:
    """When this returns, the server has accepted or rejected everything sent before.

    Two pings, because nats-py writes a ping at once but subscriptions and messages a moment later: the first ping
    may overtake them, the second cannot."""
    async with asyncio.timeout(CONFIRM_WITHIN_S):
        await _unless_cancelled(client.flush())
        await _unless_cancelled(client.flush())


class Bus:
    """Created by `connect_bus`, which owns the tasks started here: they end with its block."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._services: list[_Service] = []
        self._listeners: list[Callable[[], Awaitable[None]]] = []
        self._pending: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        self._counter = itertools.count(1)
        # Subjects we may not subscribe to, in lower case, as nats-py passes the server's errors on.
        self._denied: set[str] = set()
        self._logged = RateLimiter(FAILURES_LOGGED, max_keys=1024)
        self._unlogged: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reconnector: asyncio.Task[None] | None = None
        self._closed_by_server = asyncio.Event()
        self._confirmed = False
        self._closing = False
        self._unauthorized = False
        self.last_problem = ""

    @property
    def connected(self) -> bool:
        """Whether there is a connection on which the server has confirmed all subscriptions."""
        return self._client is not None and self._client.is_connected and self._confirmed

    # Connection

    async def open(self) -> None:
        """Connects. Raises Unavailable with the reason."""
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
            # Called again at every reconnect, so that a renewed credential is used.
            options["user_jwt_cb"] = lambda: bytearray(self._current().jwt.encode())
            options["signature_cb"] = lambda nonce: base64.b64encode(self._current().key.sign(nonce.encode()))
        servers = ", ".join(redact_url(server) for server in self._options.servers)
        self._unauthorized = False
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
            # Otherwise its subscriptions would answer beside those of the next connection.
            self._client = None
            await _close(client)
            raise
        self._confirmed = True
        if self._reconnector is None:
            self._reconnector = self._spawn(self._keep_open(), name="bus:keep_open")

    def _unconnected(self, servers: str, why: str) -> str:
        if not self._unauthorized:
            return (
                f"cannot connect to the message bus {servers}: {why}. Check that nats-server is running there and that"
                " this machine can reach it."
            )
        if self._options.credentials() is None:
            return f"the message bus {servers} requires credentials: set bus_account_seed on the frontend."
        return (
            f"the message bus {servers} does not accept this process's credential: it was signed with a seed that"
            " this nats-server does not trust, has expired or was revoked. On a frontend, check bus_account_seed; a"
            " worker gets its credential from the frontend."
        )

    def _unless_replaced(self, client: Client, react: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Ignores events of a client that is not the current one."""

        async def reaction() -> None:
            if self._client is client:
                await react()

        return reaction

    def _current(self) -> Credentials:
        credentials = self._options.credentials()
        assert credentials is not None, "credentials do not go away while the bus is open"
        return credentials

    async def _keep_open(self) -> None:
        """Reconnects after the server has closed the connection for good, when nats-py gives up."""
        while True:
            await self._closed_by_server.wait()
            for attempt in itertools.count():
                self._closed_by_server.clear()
                try:
                    await self.open()
                except CorralError as error:
                    self.last_problem = str(error)
                    log.warning("bus.reconnect_failed", error=str(error), attempt=attempt)
                except Exception as error:  # a bug must not end the attempts to reconnect
                    self.last_problem = str(error)
                    log.exception("bus.reconnect_crashed", attempt=attempt)
                else:
                    log.info("bus.reconnected")
                    await self._notify()
                    break
                await asyncio.sleep(REOPEN.delay_s(attempt + 1))

    async def renew(self) -> None:
        """Reconnects with the current credential, before the old one expires."""
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
        """After this round trip every earlier subscription is active or was denied (BusDenied)."""
        client = self._require()
        try:
            await _round_trip(client)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"the message bus did not confirm within {CONFIRM_WITHIN_S:.0f} s") from error
        subjects = [service.subject for service in self._services] + [f"{self._options.inbox}.>"]
        for subject in subjects:
            if subject.lower() in self._denied:
                raise BusDenied(
                    f"the message bus does not allow this process to subscribe to {subject!r}; check its credential"
                )

    def _require(self) -> Client:
        if self._client is None or not self._client.is_connected:
            why = f" ({self.last_problem})" if self.last_problem else ""
            raise Unavailable(f"not connected to the message bus{why}")
        return self._client

    # Sending

    async def publish(self, subject: str, data: bytes, *, confirmed: bool = False) -> None:
        """Sends a message. With `confirmed`, waits until the server has accepted or denied it (BusDenied)."""
        client = self._require()
        denial: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        key = f"publish.{next(self._counter)}"
        if confirmed:
            self._pending[key] = (subject, denial)
        try:
            await _unless_cancelled(client.publish(subject, data))
            if confirmed:
                await _round_trip(client)
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"a message of {len(data)} bytes exceeds the bus's limit") from error
        except (nats.errors.Error, TimeoutError) as error:
            if confirmed:
                raise OutcomeUnknown(f"the message bus did not confirm the message on {subject!r}: {error}") from error
            raise Unavailable(f"cannot publish on {subject!r}: {error}") from error
        finally:
            self._pending.pop(key, None)
            answered = denial.done() and denial.exception()
        if answered:
            raise answered

    async def request(self, subject: str, data: bytes, *, within_s: float) -> bytes:
        """Sends a request and returns its reply. Raises NoResponders (nothing happened), TimedOut, OutcomeUnknown or
        BusDenied."""
        client = self._require()
        reply = f"{self._options.inbox_for(subject)}.{next(self._counter)}"
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._pending[reply] = (subject, answer)
        try:
            await _unless_cancelled(client.publish(subject, data, reply=reply))
            async with asyncio.timeout(within_s):
                message = await answer
        except TimeoutError:
            raise TimedOut(f"no reply on {subject!r} within {within_s:g} s") from None
        except nats.errors.MaxPayloadError as error:
            raise TooLarge(f"a request of {len(data)} bytes exceeds the bus's limit") from error
        except nats.errors.Error as error:
            raise Unavailable(f"cannot send on {subject!r}: {error}") from error
        finally:
            self._pending.pop(reply, None)
        if message.headers and message.headers.get("Status") == "503":
            raise NoResponders(f"no subscriber on {subject!r}")
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
        """Runs `handler` for each message in its own task, at most `concurrency` at a time. With 1, it handles messages
        one after another without tasks, which is several times cheaper for many small ones.

        `answers` makes the reply of a failed handler; without it, errors are only logged. A reply address that
        `may_reply` rejects is not used."""
        service = _Service(subject, handler, concurrency, answers, may_reply)
        self._denied.discard(subject.lower())
        self._services.append(service)
        subscription: Subscription | None = None
        try:
            subscription = await self._subscribe(service)
            await self.confirm()
        except BaseException:
            # Not subscribed again at the next reconnect: the caller knows that the subscription failed.
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
            # Waiting here, not in the task, gives back-pressure: nats-py queues messages up to its limit.
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
                await asyncio.sleep(0)  # nats-py delivers all that has arrived without a pause

        return receive

    async def _listen(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Subscription:
        try:
            return await _unless_cancelled(self._require().subscribe(subject, cb=receive))
        except nats.errors.Error as error:
            raise Unavailable(f"cannot subscribe to {subject!r}: {error}") from error

    async def _handle(self, service: _Service, message: Msg) -> None:
        incoming = BusMessage(message.subject, message.data, message.reply or None)
        answer: bytes | None
        try:
            answer = await service.handler(incoming)
        except CorralError as error:
            self._log_failure(service.subject, error)
            answer = service.answers(error) if service.answers else None
        except Exception as error:  # the sender gets an answer, also after a bug
            log.exception("bus.handler_crashed", subject=incoming.subject)
            unexpected = CorralError(
                f"unexpected {type(error).__name__} while handling {incoming.subject!r}; see the log"
            )
            answer = service.answers(unexpected) if service.answers else None
        if answer is None or incoming.reply is None:
            return
        if not service.may_reply(incoming.reply):
            log.warning("bus.reply_rejected", subject=incoming.subject, reply=incoming.reply)
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
        """Limits the log lines for each subject, so that a flood of bad messages does not hide other events."""
        if self._logged.take(subject, asyncio.get_running_loop().time()):
            log.warning("bus.handler_failed", subject=subject, error=str(error), more=self._unlogged.pop(subject, 0))
        else:
            self._unlogged[subject] = self._unlogged.get(subject, 0) + 1

    # Callbacks of nats-py

    async def _on_reply(self, message: Msg) -> None:
        entry = self._pending.get(message.subject)
        if entry is not None and not entry[1].done():
            entry[1].set_result(message)

    async def _on_error(self, error: Exception) -> None:
        self.last_problem = str(error)
        # Kept, because the errors that follow when the server disconnects may read like a broken network.
        self._unauthorized = self._unauthorized or "authorization violation" in str(error).lower()
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
                    BusDenied(
                        f"the message bus does not allow this process to publish on {pending_subject!r};"
                        " check its credential"
                    )
                )

    async def _on_disconnected(self) -> None:
        self._confirmed = False
        # The next connection may have another credential.
        self._denied.clear()
        if self._closing:
            return
        log.warning("bus.disconnected", error=self.last_problem)
        for subject, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(
                    OutcomeUnknown(f"the connection to the message bus was lost before the reply on {subject!r}")
                )

    async def _on_reconnected(self) -> None:
        self.last_problem = ""
        assert self._client is not None
        self._spawn(self._confirm_until_sure(self._client), name="bus:confirm")

    async def _confirm_until_sure(self, client: Client) -> None:
        """Asks a slow server again; a denial is final for this connection."""
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
            self._closed_by_server.set()

    async def _notify(self) -> None:
        for listener in self._listeners:
            try:
                await listener()
            except Exception:  # a failing listener must not affect the others
                log.exception("bus.listener_crashed")


@asynccontextmanager
async def connect_bus(options: BusOptions) -> AsyncIterator[Bus]:
    """Opens the bus; leaving the block stops its handlers and closes it."""
    bus = Bus(options)
    try:
        await bus.open()
        yield bus
    finally:
        await bus.close()
