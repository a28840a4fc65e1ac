"""The API client of commands: it finds the frontend and the API key.

On a machine where `corral up` runs, nothing has to be configured. Elsewhere, CORRAL_URL and CORRAL_API_KEY are used.
"""

import difflib
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

from corral.cli.client.last_run import read_last_run
from corral.cli.program_name import command
from corral.core.errors import Conflict, CorralError, InvalidInput, NotFound, Unauthenticated
from corral.settings.values import check_http_url, data_home
from corral.system import SystemDisk
from corral.system.http_client import Unreachable, call_json

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class Api:
    url: str
    key: str | None
    as_json: bool
    data_dir: Path
    """The data directory of `corral up` on this machine."""
    guessed: bool = False
    """Whether `url` is the default address: none was given, and nothing runs in the data directory."""
    starting: bool = False
    """Whether no address was given and the frontend in the data directory has not published its own yet."""

    def call(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        within_s: float = 30.0,
    ) -> Any:
        """Calls the API. Path segments are escaped, because a name may contain any character."""
        target = "/".join(quote(part, safe="") for part in path) + (f"?{urlencode(query)}" if query else "")
        try:
            return call_json(
                method, f"{self.url}/{target}", bearer=self.key, body=body, headers=headers, within_s=within_s
            )
        except (Unreachable, Unauthenticated) as error:
            raise self.explain(error) from error

    def check_not_starting(self) -> None:
        """Raises when the local `corral up` is stopped or starting: another frontend may use the default address."""
        if self.guessed and read_last_run(SystemDisk(), self.data_dir) is not None:
            raise Unreachable(f"{_nothing_runs(self.data_dir)}, or name a frontend with --url")
        if self.starting:
            raise Unreachable(f"Corral in {self.data_dir} is still starting; try again in a few seconds")

    def explain(self, error: CorralError) -> CorralError:
        """Adds what the user can do about the error."""
        if isinstance(error, Unreachable):
            if self.guessed:
                return Unreachable(f"{error}, and {_nothing_runs(self.data_dir)}, or name a frontend with --url")
            return Unreachable(f"{error}. Is `{command('up')}` (or `{command('frontend')}`) running there?")
        if isinstance(error, Unauthenticated) and self.key is None:
            return Unauthenticated(f"{self.url} requires an API key; set CORRAL_API_KEY")
        if isinstance(error, Unauthenticated):
            given = self.key == os.environ.get("CORRAL_API_KEY")
            place = "CORRAL_API_KEY" if given else str(self.data_dir / "keys" / "admin.key")
            return Unauthenticated(f"{self.url} rejected the API key in {place}: it is wrong or was revoked")
        return error

    def find_node(self, name_or_id: str) -> Any:
        nodes = self.call("GET", "api", "nodes")
        exact = [node for node in nodes if name_or_id in (node["id"], node["name"])]
        alike = [node for node in nodes if node["name"].lower() == name_or_id.lower()]
        begun = [node for node in nodes if len(name_or_id) >= 4 and node["id"].startswith(name_or_id)]
        found = exact or alike or begun
        if len(found) > 1:
            raise Conflict(f"{name_or_id!r} matches {len(found)} nodes; give the full node id")
        if found:
            return found[0]
        names = [node["name"] for node in nodes]
        near = difflib.get_close_matches(name_or_id, names, n=3)
        hint = f"`{command('nodes list')}` lists all nodes" if names else "no node has joined yet"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        raise NotFound(f"no node {name_or_id!r}; {hint}")


def _local(data_dir: Path) -> tuple[str | None, str | None]:
    """The address and the admin key of the `corral up` that uses this data directory."""
    url = key = None
    with suppress(OSError, ValueError, KeyError):
        url = json.loads((data_dir / "run.json").read_text())["url"]
    with suppress(OSError):
        key = (data_dir / "keys" / "admin.key").read_text().strip()
    return url, key


def _nothing_runs(data_dir: Path) -> str:
    return f"`{command('up')}` is not running in {data_dir}; start it with: {how_to_start(data_dir)}"


def how_to_start(data_dir: Path) -> str:
    """The command that starts `corral up` with the addresses of its last run."""
    last = read_last_run(SystemDisk(), data_dir)
    return " ".join([command_on("up", data_dir), *(last.flags() if last is not None else [])])


def command_on(words: str, data_dir: Path) -> str:
    """A command as the user types it, with --data-dir where neither the default nor the environment names it."""
    usual = Path(os.environ.get("CORRAL_DATA_DIR") or data_home()).expanduser().absolute()
    return command(words if data_dir == usual else f"{words} --data-dir {shlex.quote(str(data_dir))}")


def local_data_dir(data_dir: Path | None) -> Path:
    return (data_dir or Path(os.environ.get("CORRAL_DATA_DIR") or data_home())).expanduser().absolute()


def connect(url: str | None, data_dir: Path | None, *, as_json: bool, default_url: str = DEFAULT_URL) -> Api:
    # A flag takes precedence over the environment: --data-dir over CORRAL_URL.
    named = data_dir is not None and url is None
    url = url or (None if named else os.environ.get("CORRAL_URL"))
    key = os.environ.get("CORRAL_API_KEY")
    if url is not None:
        url = _checked(url)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise InvalidInput("CORRAL_API_KEY: contains a line break or another character that no API key has")
    directory = local_data_dir(data_dir)
    local_url, local_key = _local(directory)
    if url is None or url == local_url:
        key = local_key or key if named else key or local_key
    runs = _runs(directory)
    guessed, starting = url is None and not runs, url is None and local_url is None and runs
    return Api(url or local_url or default_url, key, as_json, directory, guessed, starting)


def _checked(url: str) -> str:
    try:
        return check_http_url(url.strip())
    except ValueError as error:
        raise InvalidInput(f"--url (CORRAL_URL): {error}") from None


def _runs(directory: Path) -> bool:
    return any(SystemDisk().is_held(directory, role) for role in ("up", "frontend"))


def client_command(command: Command) -> Command:
    """Adds --json, --url and --data-dir, and passes the command its `Api` as the first argument."""
    return _client_command(command, address="--url")


def client_command_with_own_url(command: Command) -> Command:
    """The same for a command whose own --url is another one: the frontend's address is then --frontend."""
    return _client_command(command, address="--frontend")


def _client_command(command: Command, *, address: str) -> Command:
    @_api_options(address=address)
    @wraps(command)
    def wrapped(api: Api, *args: Any, **options: Any) -> Any:
        api.check_not_starting()
        return command(api, *args, **options)

    return wrapped  # type: ignore[return-value]


def api_options(command: Command) -> Command:
    """The same for a command that also works without a running frontend."""
    return _api_options(address="--url")(command)


def _api_options(*, address: str) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @click.option("--json", "as_json", is_flag=True, help="Print the API's answer as JSON.")
        @click.option(address, "frontend_url", default=None, metavar="URL", help="Frontend address. [CORRAL_URL]")
        @click.option(
            "--data-dir",
            type=click.Path(path_type=Path),
            default=None,
            help="Data directory of a local `corral up`. [CORRAL_DATA_DIR]",
        )
        @wraps(command)
        def wrapped(*args: Any, as_json: bool, frontend_url: str | None, data_dir: Path | None, **options: Any) -> Any:
            return command(connect(frontend_url, data_dir, as_json=as_json), *args, **options)

        return wrapped  # type: ignore[return-value]

    return decorate
