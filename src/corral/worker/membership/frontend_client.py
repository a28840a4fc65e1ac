"""Client of the node API of Corral and LocalAI frontends."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec

from corral.bus.limits import Count, read_message
from corral.bus.node_api import (
    INSTANCE_HEADER,
    DownloadsReply,
    DownloadsRequest,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterRequest,
    decode_downloads_reply,
    decode_heartbeat_reply,
    decode_register_reply,
)
from corral.core.errors import (
    Conflict,
    CorralError,
    Fenced,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Unauthenticated,
    Unavailable,
)
from corral.system.http_call import HttpAnswer, HttpCall, NoAnswer, NoConnection

CALL_WITHIN_S = 10.0
MESSAGE_MOST = 2000


class FrontendBusy(Unavailable):
    """A frontend answered that it is unavailable, usually because it cannot reach its store."""


class _NodeModel(msgspec.Struct, frozen=True):
    in_flight: Count = 0


_decode_models = msgspec.json.Decoder(list[_NodeModel] | None).decode


class FrontendClient:
    """Knows all frontends. All calls are idempotent, so a failed call is repeated with the next frontend."""

    def __init__(self, url: str, call: HttpCall) -> None:
        self._call_once = call
        self._configured = url
        self._urls = [url]

    def learn(self, urls: Sequence[str]) -> None:
        """Sets the other frontends. The configured one always stays in the list."""
        current = self._urls[0]
        self._urls = list(dict.fromkeys([current, self._configured, *urls]))

    async def register(self, request: RegisterRequest, *, bearer: str) -> RegisterReply:
        response = await self._post("/api/node/register", msgspec.json.encode(request), bearer)
        try:
            return decode_register_reply(response.body)
        except InvalidInput as error:
            raise Unavailable(f"{self._urls[0]} is not a frontend ({error}); check --join") from None

    async def heartbeat(self, node_id: str, request: HeartbeatRequest, *, bearer: str) -> HeartbeatReply:
        response = await self._post(f"/api/node/{node_id}/heartbeat", msgspec.json.encode(request), bearer)
        try:
            return decode_heartbeat_reply(response.body)
        except InvalidInput:  # delivered; LocalAI does not specify the reply
            return HeartbeatReply()

    async def claim_downloads(
        self, node_id: str, request: DownloadsRequest, *, bearer: str, instance: str
    ) -> DownloadsReply:
        """Which node of the site fetches each blob."""
        body = msgspec.json.encode(request)
        return decode_downloads_reply((await self._post(f"/api/node/{node_id}/downloads", body, bearer, instance)).body)

    async def drain(self, node_id: str, *, bearer: str, instance: str) -> None:
        await self._post(f"/api/node/{node_id}/drain", b"", bearer, instance)

    async def count_in_flight(self, node_id: str, *, bearer: str, instance: str) -> int:
        """The number of requests in progress on this node's replicas, according to the frontend."""
        response = await self._send("GET", f"/api/node/{node_id}/models", b"", bearer, instance)
        try:
            return sum(model.in_flight for model in read_message(response.body, _decode_models) or ())
        except InvalidInput as error:
            raise Unavailable(f"{self._urls[0]} returned an invalid list of this node's models ({error})") from None

    async def deregister(self, node_id: str, *, bearer: str, instance: str) -> None:
        await self._post(f"/api/node/{node_id}/deregister", b"", bearer, instance)

    async def _post(self, path: str, body: bytes, bearer: str, instance: str = "") -> HttpAnswer:
        return await self._send("POST", path, body, bearer, instance)

    async def _send(self, method: str, path: str, body: bytes, bearer: str, instance: str = "") -> HttpAnswer:
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        if instance:
            headers[INSTANCE_HEADER] = instance
        failures: list[CorralError] = []
        for url in list(self._urls):
            try:
                response = await self._send_to(method, url + path, body, headers)
            except (Unavailable, OutcomeUnknown) as error:
                failures.append(error)
                continue
            if url != self._urls[0]:
                # Use the frontend that answered first from now on.
                self._urls.sort(key=lambda other: other != url)
            return response
        raise next((failure for failure in failures if isinstance(failure, FrontendBusy)), failures[0])

    async def _send_to(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        try:
            # Without a proxy: traffic within the fleet stays on its own network.
            response = await self._call_once(method, url, body=body, headers=headers, within_s=CALL_WITHIN_S)
        except NoConnection as error:
            raise Unavailable(
                f"cannot reach the frontend {_origin(url)}: {error}. Check that it is running and --join is correct"
            ) from error
        except NoAnswer as error:
            raise OutcomeUnknown(f"no answer from {_origin(url)}: {error}") from error
        if response.status >= 300:
            raise _error(url, response)
        return response


def _origin(url: str) -> str:
    return url.partition("/api/")[0]


def _error(url: str, response: HttpAnswer) -> CorralError:
    message = _message(response)
    match response.status:
        case 400 | 413 | 422:
            return InvalidInput(f"the frontend rejected the request: {message}")
        case 401 | 403:
            return Unauthenticated(message)
        case 404:
            return NotFound(message)
        case 409:
            return Fenced(message) if url.endswith("/heartbeat") else Conflict(message)
        case 503 if _error_message(response) is not None:
            return FrontendBusy(f"the frontend answered 503: {message}")
        case status:
            return Unavailable(f"the frontend answered {status}: {message}")


def _message(response: HttpAnswer) -> str:
    return _error_message(response) or response.body.decode(errors="replace")[:200] or _phrase(response.status)


def _error_message(response: HttpAnswer) -> str | None:
    """The frontend's error message; None if the response is not from a frontend, but from a proxy, for example."""
    try:
        error = read_message(response.body, msgspec.json.decode)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:MESSAGE_MOST]
    except (InvalidInput, KeyError, TypeError):
        return None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return str(status)
