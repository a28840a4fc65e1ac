"""Whether machines would fetch what a configuration lists, as far as that can be said before anybody tries."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from corral.artifacts.errors import BadReference, PolicyRefused
from corral.artifacts.net.host_policy import check_address, check_url, is_loopback
from corral.artifacts.references import HttpFile, parse_reference
from corral.artifacts.settings import NetworkPolicy
from corral.core.errors import InvalidInput
from corral.core.models.config import ModelConfig
from corral.core.models.load_plan import plan_weights


class Downloads:
    """Judged by this frontend's settings: workers have their own, and most fleets give all the same."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self._policy = policy

    def check(self, config: ModelConfig) -> list[str]:
        """What workers refuse unless they are told otherwise. Raises InvalidInput for what none could ever fetch."""
        return [warning for file in plan_weights(config).files for warning in self._judge(file.uri)]

    def warn(self, config: ModelConfig) -> list[str]:
        """Of a configuration that was let in, perhaps by an earlier version."""
        try:
            return self.check(config)
        except InvalidInput as error:
            return [str(error)]

    def _judge(self, uri: str) -> Iterator[str]:
        try:
            reference = parse_reference(uri)
            if not isinstance(reference, HttpFile):
                return
            host = urlsplit(reference.url).hostname or ""
            check_url(self._policy, reference.url)
        except BadReference as error:
            raise InvalidInput(f"no machine can fetch {_shown(uri)}: {error}") from error
        except PolicyRefused as error:
            yield _warning(uri, str(error), "--plain-http-hosts", "CORRAL_PLAIN_HTTP_HOSTS", host)
        else:
            why = self._refused_address(reference.url, host)
            if why:
                yield _warning(uri, f"{why}.", "--trusted-hosts", "CORRAL_TRUSTED_HOSTS", host)

    def _refused_address(self, url: str, host: str) -> str | None:
        """Of an address that needs no looking up; where a name leads is seen when it is fetched."""
        parts = urlsplit(url)
        address = "127.0.0.1" if is_loopback(host) and not host[0].isdigit() and ":" not in host else host
        try:
            return check_address(self._policy, host, parts.port or (443 if parts.scheme == "https" else 80), address)
        except ValueError:
            return None


def _warning(uri: str, why: str, flag: str, variable: str, host: str) -> str:
    return (
        f"machines will not fetch {_shown(uri)}: {why} To allow it, start every worker with {flag} {host}"
        f" ({variable}={host} for `corral up`); give it to frontends too, and this warning ends."
    )


def _shown(uri: str) -> str:
    """Without what may be a password."""
    return re.sub(r"//[^/@]*@", "//...@", uri)[:200]
