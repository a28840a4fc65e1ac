"""The error tree. The type is for code, the text is for a person.

    CorralError
    ├── InvalidInput            the client can correct it                 -> 400, exit 2
    │   └── InvalidSetting      a setting prevents the start; the text names it
    ├── Unauthenticated         no credential, or an unknown one          -> 401
    ├── Forbidden               a known client without permission         -> 403
    ├── NotFound                                                          -> 404
    ├── Conflict                the state is not what the client assumed  -> 409
    │   └── Fenced              a newer holder has taken over
    ├── TooLarge                                                          -> 413
    ├── RateLimited             too many requests; waiting helps          -> 429
    ├── Unavailable             definitely not done; a retry helps        -> 503
    │   └── NoResponders        nobody listens on that subject
    └── OutcomeUnknown          it may or may not have happened           -> 504
        └── TimedOut            no answer within the limit

A call to another machine or to the store ends as done, as definitely not done (all errors above but the last two)
or as *unknown*. Code has to handle all three.
"""

from typing import ClassVar


class CorralError(Exception):
    """The text says what was tried, what went wrong and what to do."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class InvalidInput(CorralError):
    code = "invalid_input"


class InvalidSetting(InvalidInput):
    code = "invalid_setting"


class Unauthenticated(CorralError):
    code = "unauthenticated"


class Forbidden(CorralError):
    code = "forbidden"


class NotFound(CorralError):
    code = "not_found"


class Conflict(CorralError):
    code = "conflict"


class Fenced(Conflict):
    code = "fenced"


class TooLarge(CorralError):
    code = "too_large"


class RateLimited(CorralError):
    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(CorralError):
    code = "unavailable"
    retryable = True


class NoResponders(Unavailable):
    code = "no_responders"


class OutcomeUnknown(CorralError):
    code = "outcome_unknown"
    retryable = True


class TimedOut(OutcomeUnknown):
    code = "timed_out"
