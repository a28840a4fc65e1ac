"""Registry access: tags to digests, tokens, mirrors. Credentials are sent to their own registry only."""

import base64
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.blobs import BlobSource, BlobStream
from corral.artifacts.content.http_source import HttpSource
from corral.artifacts.digests import Digest, digest_of
from corral.artifacts.errors import ArtifactError, PolicyRefused, SourceRejected, SourceUnavailable
from corral.artifacts.net.client import Outbound, Response
from corral.artifacts.net.host_policy import is_loopback
from corral.artifacts.oci.image import ACCEPT, MANIFEST_BYTES, Repository
from corral.artifacts.references import DOCKER_HUB, OciImage, registry_host
from corral.artifacts.settings import RegistryLogin
from corral.system.json import decode_json

# Registries whose token service lives at another host. A realm that is neither the registry itself nor listed here
# gets an anonymous question, never a password.
TOKEN_HOSTS = {DOCKER_HUB: "auth.docker.io", "registry.gitlab.com": "gitlab.com", "nvcr.io": "authn.nvidia.com"}

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _DockerAuth(msgspec.Struct):
    auth: str = ""
    identitytoken: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _DockerAuth] = {}


def read_docker_logins(path: Path) -> dict[str, RegistryLogin]:
    """The logins stored by `docker login`, by registry host. Credential helpers are other programs and are not run."""
    try:
        config = decode_json(path.read_bytes(), _DockerConfig)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PolicyRefused(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise PolicyRefused(f"{path} is not a docker config: {error}.") from error
    logins: dict[str, RegistryLogin] = {}
    for server, entry in config.auths.items():
        host = registry_host(urlsplit(server if "://" in server else f"//{server}").netloc)
        if entry.auth:
            try:
                username, _, password = base64.b64decode(entry.auth).decode().partition(":")
            except ValueError as error:
                raise PolicyRefused(f"{path}: the login for {server} cannot be read. Log in there again.") from error
            logins[host] = RegistryLogin(username=username, password=password)
        elif entry.identitytoken:
            logins[host] = RegistryLogin(token=entry.identitytoken)
    return logins


@dataclass(slots=True)
class OciRegistry:
    """One registry host and how to log in to it."""

    outbound: Outbound
    host: str
    plain_http: bool
    login: RegistryLogin | None = None
    _tokens: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base_url(self) -> str:
        return f"{'http' if self.plain_http else 'https'}://{self.host}/v2"

    def headers(self, repository: str) -> Mapping[str, str]:
        with self._lock:
            token = self._tokens.get(repository)
        return {"Authorization": token} if token else {}

    def get(
        self,
        repository: str,
        path: str,
        cancel: CancelToken,
        *,
        accept: str = "",
        method: str = "GET",
        limit: int = MANIFEST_BYTES,
    ) -> tuple[Response, bytes]:
        """A small document. A first 401 leads to one login."""
        url = f"{self.base_url}/{repository}/{path}"
        for logged_in in (False, True):
            headers = dict(self.headers(repository))
            if accept:
                headers["Accept"] = accept
            response, body = self.outbound.fetch(
                url,
                cancel=cancel,
                limit=limit,
                headers=headers,
                accept_statuses=frozenset({401}),
                method=method,
            )
            if response.status != 401:
                return response, body
            if logged_in:
                break
            self._log_in(repository, response.headers.get("www-authenticate", ""), cancel)
        raise SourceRejected(
            f"{self.host} denies access to {repository}. Configure a login that may read it.", status=401
        )

    def _log_in(self, repository: str, challenge: str, cancel: CancelToken) -> None:
        scheme, _, rest = challenge.partition(" ")
        facts = dict(_CHALLENGE.findall(rest))
        match scheme.lower():
            case "basic" if self.login is not None:
                value = _basic(self.login)
            case "bearer" if "realm" in facts:
                value = f"Bearer {self._fetch_token(repository, facts, cancel)}"
            case _:
                raise SourceRejected(
                    f"{self.host} requires a login for {repository}, and none is configured.", status=401
                )
        with self._lock:
            self._tokens[repository] = value

    def _fetch_token(self, repository: str, facts: Mapping[str, str], cancel: CancelToken) -> str:
        realm = facts["realm"]
        query = {"scope": f"repository:{repository}:pull"}
        if "service" in facts:
            query["service"] = facts["service"]
        headers: dict[str, str] = {}
        if self.login is not None and self._may_have_password(realm):
            headers["Authorization"] = f"Bearer {self.login.token}" if self.login.token else _basic(self.login)
        joiner = "&" if urlsplit(realm).query else "?"
        _, body = self.outbound.fetch(
            f"{realm}{joiner}{urlencode(query)}", cancel=cancel, limit=1 << 20, headers=headers
        )
        try:
            answer = decode_json(body, _Token)
        except msgspec.DecodeError as error:
            raise SourceUnavailable(f"{urlsplit(realm).hostname} sent an invalid response to a login.") from error
        token = answer.token or answer.access_token
        if not token:
            raise SourceRejected(f"{urlsplit(realm).hostname} sent no token for {repository}.", status=401)
        return token

    def _may_have_password(self, realm: str) -> bool:
        parts = urlsplit(realm)
        if parts.scheme != "https" and not self.plain_http:
            return False
        return parts.netloc.lower() == self.host or parts.hostname == TOKEN_HOSTS.get(self.host)


def _basic(login: RegistryLogin) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


class Registries:
    """All registries of one process, with their mirrors."""

    def __init__(
        self,
        outbound: Outbound,
        *,
        logins: Mapping[str, RegistryLogin],
        mirrors: Mapping[str, tuple[str, ...]],
        plain_http_hosts: frozenset[str],
    ) -> None:
        self._outbound = outbound
        self._logins = logins
        self._mirrors = mirrors
        self._plain = plain_http_hosts
        self._known: dict[str, OciRegistry] = {}
        self._lock = threading.Lock()

    def registry(self, host: str) -> OciRegistry:
        with self._lock:
            if host not in self._known:
                name = urlsplit(f"//{host}").hostname or host
                plain = is_loopback(name) or host in self._plain or name in self._plain
                self._known[host] = OciRegistry(self._outbound, host, plain, self._logins.get(host))
            return self._known[host]

    def ordered(self, host: str) -> list[OciRegistry]:
        """The configured mirrors, then the registry itself."""
        return [self.registry(mirror) for mirror in (*self._mirrors.get(host, ()), host)]

    def pin(self, image: OciImage, cancel: CancelToken) -> Digest:
        """The digest a tag points at. Afterwards only the digest is used."""
        if image.digest is not None:
            return image.digest
        _, digest = self._manifest(image, quote(image.tag or "latest"), cancel)
        return digest

    def _manifest(self, image: OciImage, reference: str, cancel: CancelToken) -> tuple[tuple[bytes, str], Digest]:
        problems: list[ArtifactError] = []
        for registry in self.ordered(image.registry):
            try:
                response, body = registry.get(image.repository, f"manifests/{reference}", cancel, accept=ACCEPT)
            except (SourceRejected, SourceUnavailable, PolicyRefused) as error:
                problems.append(error)
                continue
            if response.status != 200:
                problems.append(SourceRejected(f"{registry.host} returned {response.status}.", status=response.status))
                continue
            return (body, response.headers.get("content-type", "")), digest_of(body)
        raise problems[-1]

    def read_tagged(self, image: OciImage, tag: str, cancel: CancelToken) -> bytes:
        """The manifest under another tag of the image's repository. It is not verified by a digest; its signature has
        to be checked."""
        (content, _), _ = self._manifest(image, quote(tag), cancel)
        return content

    def repository(self, image: OciImage, cancel: CancelToken) -> Repository:
        registries = self.ordered(image.registry)

        def read_manifest(digest: Digest) -> tuple[bytes, str]:
            document, _ = self._manifest(image, digest, cancel)
            return document

        def read_small(digest: Digest, limit: int) -> bytes:
            problem: ArtifactError | None = None
            for registry in registries:
                try:
                    return registry.get(image.repository, f"blobs/{digest}", cancel, limit=limit)[1]
                except (SourceRejected, SourceUnavailable, PolicyRefused) as error:
                    problem = error
            raise problem or SourceRejected(f"No registry has {digest}.", status=404)

        def sources(digest: Digest) -> tuple[BlobSource, ...]:
            return tuple(RegistrySource(registry, image.repository, f"blobs/{digest}") for registry in registries)

        def manifest_sources(digest: Digest) -> tuple[BlobSource, ...]:
            path = f"manifests/{digest}"
            return tuple(RegistrySource(registry, image.repository, path, accept=ACCEPT) for registry in registries)

        return Repository(
            name=str(image),
            read_manifest=read_manifest,
            read_small=read_small,
            sources=sources,
            manifest_sources=manifest_sources,
        )


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """A blob or manifest of one repository. Tokens expire during a long download, so a 401 leads to a new login and a
    retry."""

    registry: OciRegistry
    repository: str
    path: str
    accept: str = ""

    @property
    def label(self) -> str:
        return f"{self.registry.host}/{self.repository}"

    @contextmanager
    def open(self, offset: int, cancel: CancelToken) -> Iterator[BlobStream]:
        accepted = {"Accept": self.accept} if self.accept else {}
        source = HttpSource(
            outbound=self.registry.outbound,
            url=f"{self.registry.base_url}/{self.repository}/{self.path}",
            headers=lambda: {**self.registry.headers(self.repository), **accepted},
        )
        with ExitStack() as opened:
            try:
                stream = opened.enter_context(source.open(offset, cancel))
            except SourceRejected as error:
                if error.status != 401:
                    raise
                self.registry.get(self.repository, self.path, cancel, accept=self.accept, method="HEAD")
                stream = opened.enter_context(source.open(offset, cancel))
            yield stream
