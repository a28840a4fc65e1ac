"""What a client hears when no replica answers its request."""

from corral.frontend.gateway.answers import Refusal
from corral.frontend.gateway.limits import LaneLimits


def crashed() -> Refusal:
    return Refusal(500, "something went wrong inside Corral; the frontend's log has the details")


def queue_full(why: str, waiting: int, limits: LaneLimits) -> Refusal:
    message = f"{why} and {waiting} requests wait already; try again later"
    return Refusal(429, message, code="queue_full", retry_after_s=min(limits.queue_wait_s, 5.0))


def stayed_busy(model: str, position: int, limits: LaneLimits) -> Refusal:
    message = (
        f"every replica of {model!r} stayed busy for {limits.queue_wait_s:g} s;"
        f" this request began as number {position} in line"
    )
    return Refusal(503, message, code="queue_wait_exceeded", retry_after_s=5)


def no_other(failure: str, model: str) -> Refusal:
    message = f"{failure}. No other replica of {model!r} could take over; try again."
    return Refusal(502, message, code="replica_failed", retry_after_s=2)


def nobody_came(failure: str, model: str) -> Refusal:
    message = f"{failure}. No replica of {model!r} came back in time; try again."
    return Refusal(503, message, code="replica_away", retry_after_s=5)


def sent_nothing(limits: LaneLimits) -> Refusal:
    return Refusal(504, f"the replica sent nothing for {limits.silence_s:g} s", code="replica_silent")


def no_embeddings(model: str) -> Refusal:
    message = (
        f"{model!r} makes no embeddings here: its backend was started without them."
        " They need a model whose configuration has `embeddings: true`."
    )
    return Refusal(400, message, code="embeddings_not_supported", param="model")
