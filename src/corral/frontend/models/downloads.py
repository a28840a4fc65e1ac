"""Checks whether workers would download the files of a configuration, as far as that is known beforehand."""

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
    """Uses this frontend's settings; workers have their own, which are the same in most fleets."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self._policy = policy

    def check(self, config: ModelConfig) -> list[str]:
        """Warnings about files that workers reject by default. Raises InvalidInput for files that no worker can
        download."""
        return [warning for file in plan_weights(config).files for warning in self._check(file.uri)]

    def warn(self, config: ModelConfig) -> list[str]:
        """Warnings about a stored configuration, which an earlier version may have accepted."""
        try:
            return self.check(config)
        except InvalidInput as error:
            return [str(error)]

    def _check(self, uri: str) -> Iterator[str]:
        try:
            reference = parse_reference(uri)
            if not isinstance(reference, HttpFile):
                return
            host = urlsplit(reference.url).hostname or ""
            check_url(self._policy, reference.url)
        except BadReference as error:
            raise InvalidInput(f"no node can download {_redacted(uri)}: {error}") from error
        except PolicyRefused as error:
            yield _warning(uri, str(error), "--plain-http-hosts", "CORRAL_PLAIN_HTTP_HOSTS", host)
        else:
            why = self._refused_address(reference.url, host)
            if why:
                yield _warning(uri, f"{why}.", "--trusted-hosts", "CORRAL_TRUSTED_HOSTS", host)

    def _refused_address(self, url: str, host: str) -> str | None:
        """Why the address is rejected. Only for numeric addresses: names are resolved when the file is downloaded."""
        parts = urlsplit(url)
        address = "127.0.0.1" if is_loopback(host) and not host[0].isdigit() and ":" not in host else host
        try:
            return check_address(self._policy, host, parts.port or (443 if parts.scheme == "https" else 80), address)
        except ValueError:
            return None


def _warning(uri: str, why: str, flag: str, variable: str, host: str) -> str:
    return (
        f"workers will not download {_redacted(uri)}: {why} To allow it, start every worker with {flag} {host}"
        f" ({variable}={host} for `corral up`). To remove this warning, start the frontends with it too."
    )


def _redacted(uri: str) -> str:
    """Without a possible password."""
    return re.sub(r"//[^/@]*@", "//...@", uri)[:200]
