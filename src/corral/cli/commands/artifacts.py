"""`corral artifacts`: download, inspect, verify and prune artifacts on this machine, without a cluster. It prepares
machines that have no network, and shows why an install fails."""

import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from corral.artifacts import (
    LOCALAI_BACKENDS,
    LOCALAI_MODELS,
    Artifacts,
    BackendRequest,
    InstalledBackend,
    InstalledVersion,
    KeptFile,
    ModelFile,
    ResolvedArtifact,
    SignaturePolicy,
    Verified,
)
from corral.artifacts.content.pieces import TreePiece
from corral.artifacts.digests import parse_digest
from corral.artifacts.errors import BadReference, NotInstalled
from corral.artifacts.galleries.catalogue import Catalogue
from corral.artifacts.references import (
    HttpFile,
    LocalPath,
    OciArchive,
    OciImage,
    OciLayout,
    Reference,
    parse_reference,
)
from corral.artifacts.settings import ArtifactSettings, GallerySettings
from corral.cli.client.artifacts import ModelQuery, hints, is_known, model_facts, pick, request_for_name, weights_facts
from corral.cli.client.settings_flags import settings_file
from corral.cli.display.artifact_progress import ProgressView
from corral.cli.display.output import warn_of_galleries
from corral.cli.program_name import command
from corral.core.backends.build import BuildRef
from corral.core.errors import CorralError, InvalidInput, InvalidSetting
from corral.core.sizes import format_bytes, parse_size_bytes
from corral.settings.reading import load_settings
from corral.settings.roles import WorkerSettings
from corral.settings.values import check_hosts
from corral.system import SystemClock, SystemIds
from corral.system.interrupts import EXIT_INTERRUPTED
from corral.system.run import run_interruptible
from corral.telemetry.logs import configure_logs
from corral.worker.backends.download_settings import artifact_settings

Result = TypeVar("Result")
DAMAGED_SHOWN = 20
ARCHIVE = re.compile(r"\.(zip|whl|tgz|tzst|txz|tbz2|tar(\.(gz|zst|xz|bz2))?)$", re.IGNORECASE)


def _size(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return parse_size_bytes(text) if text is not None else None
    except InvalidInput as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _hosts(context: click.Context, parameter: click.Parameter, hosts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return check_hosts(hosts)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.group(name="artifacts")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    envvar="CORRAL_DATA_DIR",
    help="Directory of blobs, layers, backends and models. Default: the data directory of a worker on this machine."
    " For the directory of a `corral up`, its worker's directory is used. [CORRAL_DATA_DIR]",
)
@click.option(
    "--gallery", "galleries", multiple=True, metavar="[NAME=]URL", help="Look up backends in this gallery; repeatable."
)
@click.option(
    "--model-gallery",
    "model_galleries",
    multiple=True,
    metavar="[NAME=]URL",
    help="Look up models in this gallery; repeatable.",
)
@click.option(
    "--localai-gallery/--no-localai-gallery", default=False, help="Also look up names in LocalAI's galleries."
)
@click.option(
    "--trust",
    multiple=True,
    metavar="HOST",
    callback=_hosts,
    help="Allow downloads from this host or network at a private address; repeatable.",
)
@click.option("--plain-http", multiple=True, metavar="HOST", help="Allow plain HTTP (no TLS) to this host; repeatable.")
@click.option(
    "--allow-source-builds",
    is_flag=True,
    help="Build PyPI packages that have no usable wheel from source, which runs their code."
    " [CORRAL_ALLOW_SOURCE_BUILDS]",
)
@click.option(
    "--limit-rate", callback=_size, metavar="SIZE", help="Maximum download rate per second, for example 20MiB."
)
@click.pass_context
def artifacts_group(
    context: click.Context,
    data_dir: Path | None,
    galleries: tuple[str, ...],
    model_galleries: tuple[str, ...],
    localai_gallery: bool,
    trust: tuple[str, ...],
    plain_http: tuple[str, ...],
    allow_source_builds: bool,
    limit_rate: int | None,
) -> None:
    """Download, inspect, verify and prune local artifacts.

    Works on this machine only, without a cluster: to prepare a machine that has no network, or to find out why an
    install fails.

    The settings of a worker on this machine (registry mirrors, logins, hosts, rate), from CORRAL_... variables or the
    settings file, apply here too.
    """
    # Results go to standard output; only warnings and errors are logged, to standard error.
    configure_logs(level="warning", format="console", role="artifacts")
    try:
        worker = load_settings(WorkerSettings, flags={"data_dir": _worker_directory(data_dir)}, file=settings_file())
        settings = artifact_settings(worker, os.environ)
    except InvalidSetting as error:
        raise click.ClickException(str(error)) from error
    network = settings.network
    context.obj = replace(
        settings,
        galleries=_galleries(galleries) + ((LOCALAI_BACKENDS,) if localai_gallery else ()),
        model_galleries=_galleries(model_galleries) + ((LOCALAI_MODELS,) if localai_gallery else ()),
        network=replace(
            network,
            trusted_hosts=network.trusted_hosts | {host.lower() for host in trust},
            plain_http_hosts=network.plain_http_hosts | {host.lower() for host in plain_http},
        ),
        pypi=replace(settings.pypi, allow_source_builds=allow_source_builds or settings.pypi.allow_source_builds),
        transfer=replace(
            settings.transfer, bandwidth_bytes_per_s=limit_rate or settings.transfer.bandwidth_bytes_per_s
        ),
    )


def _worker_directory(given: Path | None) -> str | None:
    """None for the default of workers. The worker of a `corral up` has its directory inside the one of `corral up`."""
    if given is None:
        return None
    directory = given.expanduser()
    return str(directory / "worker" if (directory / "keys" / "local.token").exists() else directory)


def _galleries(texts: tuple[str, ...]) -> tuple[GallerySettings, ...]:
    return tuple(_gallery(text, position) for position, text in enumerate(texts))


def _gallery(text: str, position: int) -> GallerySettings:
    name, equals, url = text.partition("=")
    if equals and "/" not in name:
        return GallerySettings(name=name, url=url)
    return GallerySettings(name=f"gallery{position + 1}", url=text)


def _trusting(settings: ArtifactSettings, reference: Reference | None) -> ArtifactSettings:
    """Trusts the address that the user typed, also a private one. Its redirects are checked as usual."""
    match reference:
        case OciImage(registry=host):
            named = host
        case HttpFile(url=url):
            named = urlsplit(url).netloc
        case _:
            return settings
    network = replace(settings.network, trusted_hosts=settings.network.trusted_hosts | {named.lower()})
    return replace(settings, network=network)


def _reference(text: str) -> Reference | None:
    """A location, or None for a name to look up in the galleries."""
    if not text:
        raise click.BadParameter("is empty; give a backend's name or location")
    if "/" not in text and (Path(text).is_dir() or (ARCHIVE.search(text) and Path(text).is_file())):
        return parse_reference(f"./{text}")
    if "/" not in text and ":" not in text:
        return None
    try:
        return parse_reference(text)
    except BadReference as error:
        if "/" not in text.partition("@")[0]:  # `gallery@name`, whose name may have one
            return None
        raise click.ClickException(str(error)) from error


def _location(text: str, reference: Reference) -> str:
    """The location as it is recorded for later downloads: local paths are made absolute."""
    if isinstance(reference, LocalPath):
        return str(LocalPath(reference.path.absolute()))
    if isinstance(reference, OciArchive | OciLayout):
        return str(replace(reference, path=reference.path.absolute()))
    return text


def _run(settings: ArtifactSettings, work: Callable[[Artifacts], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        async with Artifacts(settings, clock=SystemClock(), ids=SystemIds()) as artifacts:
            return await work(artifacts)

    try:
        return run_interruptible(main)
    except CorralError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or settings.data_dir}: {error.strerror or error}.") from error
    except KeyboardInterrupt:
        click.echo("Interrupted. Downloaded parts are kept; the next pull continues from there.", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def _show(as_json: bool, value: Any, lines: list[str]) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    else:
        for line in lines:
            click.echo(line)


_signing_key = click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Reject images without a cosign signature by this public key (PEM).",
)


def _policy(key: Path | None) -> SignaturePolicy | None:
    return SignaturePolicy(public_keys=(key.read_text(errors="replace"),)) if key is not None else None


_model_variant = click.option(
    "--variant", default="", help="With --model: this build of the model instead of the best match."
)
_model_memory = click.option(
    "--memory",
    callback=_size,
    metavar="SIZE",
    help="With --model: memory available to the model, for example 24GiB. Default: this machine's memory, for a CPU.",
)


def _version_facts(version: InstalledVersion) -> dict[str, Any]:
    metadata = version.metadata
    return {
        "kind": "backend",
        "name": version.name,
        "digest": metadata.digest,
        "version": metadata.version,
        "path": str(version.path),
        "current": version.current,
        "made_by": version.made_by,
        "source": metadata.source or metadata.uri,
        "size_bytes": metadata.size_bytes,
        "installed_at": metadata.installed_at,
        "verified_by": metadata.verified_by,
        "protocol": version.manifest.protocol,
    }


@artifacts_group.command()
@click.argument("what")
@click.option(
    "--name", default="", help="Install under this name. Default: the gallery's name, or one made from the location."
)
@click.option(
    "--capability", default="default", show_default=True, help="Resolve the name for a node with this capability."
)
@click.option(
    "--substitute",
    is_flag=True,
    help="If the named build does not support the node, use one of the same family that does.",
)
@click.option("--digest", default="", help="Install only this version (digest).")
@_signing_key
@click.option("--force", is_flag=True, help="Install again even if this version is installed, to repair it.")
@click.option("--model", is_flag=True, help="WHAT is a model in a gallery, or a weights file.")
@_model_variant
@_model_memory
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def pull(
    settings: ArtifactSettings,
    what: str,
    name: str,
    capability: str,
    substitute: bool,
    digest: str,
    key: Path | None,
    force: bool,
    model: bool,
    variant: str,
    memory: int | None,
    as_json: bool,
) -> None:
    """Download a backend and make it the current version.

    WHAT is the name of a backend in a gallery, or a location.

    A location is an image (quay.io/owner/name:tag), https://..., pypi://package==version, hf://owner/repo/file,
    s3://bucket/key, or a path.
    """
    reference = _reference(what)
    bar = ProgressView(name or (_name_of(what) if reference is not None else what), quiet=as_json)

    async def backend(artifacts: Artifacts) -> InstalledVersion:
        if reference is None:
            request = await request_for_name(artifacts, what, capability, substitute=substitute)
            request = replace(request, build=replace(request.build, name=name or request.build.name))
        else:
            location = _location(what, reference)
            request = BackendRequest(build=BuildRef(name=name or _name_of(location), uris=(location,)))
        if digest:
            request = replace(request, build=replace(request.build, digest=parse_digest(digest)))
        if key is not None:
            request = replace(request, signatures=_policy(key))
        return await artifacts.install(request, force=force, on_progress=bar.update)

    async def weights(artifacts: Artifacts) -> list[dict[str, Any]]:
        if reference is None:
            query = ModelQuery(name=what, capability=capability, variant=variant, memory_bytes=memory)
            entry, picked = await pick(artifacts, query)
            if not as_json and (entry.variants or entry.name.lower() != what.lower()):
                click.echo(picked.reason, err=True)
            files = (await artifacts.read_model(entry)).files
        else:
            files = [ModelFile(filename=name or what.rpartition("/")[2], uri=_location(what, reference))]
        placed = await artifacts.install_files(files, on_progress=bar.update)
        return [{"path": str(file.path), "digest": file.digest, "size_bytes": file.size} for file in placed]

    try:
        if model:
            files = _run(_trusting(settings, reference), weights)
            _show(as_json, files, [f"{file['path']}  {file['digest']}" for file in files])
            return
        version = _run(_trusting(settings, reference), backend)
    finally:
        bar.close()
    _show(as_json, _version_facts(version), [f"{version.name}: {version.digest}", f"installed in {version.path}"])


def _name_of(location: str) -> str:
    tail = location.partition("@")[0].rstrip("/").rpartition("/")[2]
    return ARCHIVE.sub("", tail).replace(":", "-").partition("==")[0] or "backend"


@artifacts_group.command()
@click.argument("what")
@click.option(
    "--capability", default="default", show_default=True, help="Resolve the name for a node with this capability."
)
@_signing_key
@click.option("--model", is_flag=True, help="WHAT is a model in a gallery.")
@_model_variant
@_model_memory
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def inspect(
    settings: ArtifactSettings,
    what: str,
    capability: str,
    key: Path | None,
    model: bool,
    variant: str,
    memory: int | None,
    as_json: bool,
) -> None:
    """Show what a name or location resolves to.

    Downloads only the metadata."""
    reference = _reference(what)
    if model and reference is None:
        query = ModelQuery(name=what, capability=capability, variant=variant, memory_bytes=memory)
        shown = _run(settings, lambda artifacts: model_facts(artifacts, query))
        _show(as_json, shown, [line for key, value in shown.items() for line in _fact_lines(key, value)])
        return

    async def look(artifacts: Artifacts) -> tuple[ResolvedArtifact | None, dict[str, Any]]:
        if reference is not None:
            return await artifacts.inspect(_location(what, reference), signatures=_policy(key)), {}
        catalogue = await artifacts.read_catalogue()
        if not is_known(catalogue, what):
            message = [f"No gallery has a backend named {what}.", *await hints(artifacts, catalogue, what)]
            raise NotInstalled(" ".join(message))
        facts = _resolution_facts(catalogue, what, capability)
        uri = facts.get("uri")
        return (await artifacts.inspect(uri, signatures=_policy(key)) if uri else None), facts

    found, facts = _run(_trusting(settings, reference), look)
    if found is not None:
        facts |= {
            "digest": found.digest,
            "source": found.source,
            "version": found.version,
            "platform": found.platform,
            "packed_bytes": found.packed_bytes,
            "verified_by": found.verified_by,
            "pieces": [_piece_facts(piece) for piece in found.pieces],
        }
    _show(as_json, facts, [line for key, value in facts.items() for line in _fact_lines(key, value)])
    if found is None:
        raise SystemExit(1)


def _fact_lines(key: str, value: Any) -> list[str]:
    if key == "files":
        files = [f"  {file['filename']}  {file['digest'] or '-'}  {file['uri']}" for file in value]
        return [f"files: {len(files)}", *files]
    if key == "pieces":
        pieces = [f"  {piece['name']}  {piece['digest'] or '-'}  {piece['size_bytes']}" for piece in value]
        return [f"pieces: {len(pieces)}", *pieces]
    if isinstance(value, dict):
        value = msgspec.json.encode(value).decode()
    return [f"{key}: {', '.join(value) if isinstance(value, list) else value}"] if value else []


def _piece_facts(piece: Any) -> dict[str, Any]:
    if isinstance(piece, TreePiece):
        return {"name": str(piece.path), "digest": piece.digest, "size_bytes": piece.size}
    return {"name": piece.blob.name, "digest": piece.blob.digest, "size_bytes": piece.blob.size}


def _resolution_facts(catalogue: Catalogue, name: str, capability: str) -> dict[str, Any]:
    resolution = catalogue.resolve(name, capability)
    facts: dict[str, Any] = {"name": name, "capability": capability, "reason": resolution.reason}
    entry = getattr(resolution, "name", None)
    if entry is None:
        return facts
    chosen = catalogue.chosen_entry(name, resolution)  # type: ignore[arg-type]
    return facts | {"entry": chosen.name, "gallery": chosen.gallery, "uri": chosen.uri, "mirrors": chosen.mirrors}


@artifacts_group.command(name="list")
@click.option("--available", is_flag=True, help="List the backends of the galleries instead of installed ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def list_installed(settings: ArtifactSettings, available: bool, as_json: bool) -> None:
    """List installed backend versions and weights. A star marks the current version of a backend, from which new
    processes start."""
    if available:
        catalogue = _run(settings, lambda artifacts: artifacts.read_catalogue())
        offered = [{"name": entry.name, "gallery": entry.gallery, "uri": entry.uri} for entry in catalogue.entries]
        warn_of_galleries([asdict(gallery) for gallery in catalogue.galleries])
        _show(as_json, offered, [f"{item['gallery']}@{item['name']}" for item in offered])
        return

    async def look(artifacts: Artifacts) -> tuple[tuple[InstalledBackend, ...], list[KeptFile]]:
        return await artifacts.list_backends(), await artifacts.list_files()

    backends, weights = _run(settings, look)
    facts = [_version_facts(version) for backend in backends for version in backend.versions]
    facts += [
        {"kind": "backend", "name": backend.name, "problem": backend.problem} for backend in backends if backend.problem
    ]
    facts += [weights_facts(file) for file in weights]
    lines = [_listed_line(item) for item in facts]
    _show(as_json, facts, lines or [f"Nothing is installed. Try `{command('artifacts pull llama-cpp')}`."])


def _listed_line(item: dict[str, Any]) -> str:
    name = f"models/{item['name']}" if item["kind"] == "weights" else item["name"]
    parts = [name, item.get("digest") or item.get("problem") or "-", item.get("version")]
    if size := item.get("size_bytes"):
        parts.append(format_bytes(size))
    return f"{'*' if item.get('current') else ' '} {'  '.join(part for part in parts if part)}"


@artifacts_group.command()
@click.argument("names", nargs=-1)
@click.option("--repair", is_flag=True, help="Install damaged versions again from their source.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def verify(settings: ArtifactSettings, names: tuple[str, ...], repair: bool, as_json: bool) -> None:
    """Verify the files of installed backends. Exits with 1 if any is damaged."""

    async def look(artifacts: Artifacts) -> list[Verified]:
        installed = names or [backend.name for backend in await artifacts.list_backends() if backend.versions]
        return [item for name in installed for item in await artifacts.verify(name)]

    found = _run(settings, look)
    damaged = [item for item in found if item.damaged]
    if repair and damaged:
        for item in damaged:
            _repair(settings, item)
        found = _run(settings, look)
    _show(as_json, found, [line for item in found for line in _verified_lines(item)] or ["Nothing is installed."])
    if any(item.damaged for item in found):
        raise SystemExit(1)


def _repair(settings: ArtifactSettings, damaged: Verified) -> None:
    """Repairs a damaged version. The current version stays the same."""
    backends = _run(settings, lambda artifacts: artifacts.list_backends())
    (backend,) = [backend for backend in backends if backend.name == damaged.name]
    (version,) = [version for version in backend.versions if version.digest == damaged.digest]
    current = backend.current

    async def repair(artifacts: Artifacts) -> None:
        await artifacts.repair(version)
        if current is not None and current.digest != version.digest:
            await artifacts.rollback(version.name, to=current.digest)

    _run(_trusting(settings, parse_reference(version.metadata.uri)), repair)


def _verified_lines(item: Verified) -> list[str]:
    if item.unknown:
        return [f"? {item.name}  {item.digest or '-'}  cannot be checked: {item.unknown}"]
    if item.sound:
        return [f"  {item.name}  {item.digest}  {item.files} files, all intact"]
    shown = [f"    {path}" for path in item.damaged[:DAMAGED_SHOWN]]
    if len(item.damaged) > DAMAGED_SHOWN:
        shown.append(f"    and {len(item.damaged) - DAMAGED_SHOWN} more")
    remedy = f"    Repair it with `{command(f'artifacts verify {item.name} --repair')}`."
    return [f"! {item.name}  {item.digest}  {len(item.damaged)} of {item.files} files are damaged", *shown, remedy]


@artifacts_group.command()
@click.option("--keep", type=click.IntRange(min=1), default=None, help="Number of versions to keep per backend.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def prune(settings: ArtifactSettings, keep: int | None, as_json: bool) -> None:
    """Remove old versions and unused layers and blobs. Versions in use by processes are kept."""
    freed = _run(settings, lambda artifacts: artifacts.collect_garbage(keep=keep))
    lines = [*(f"removed {version}" for version in freed.versions)]
    lines.append(f"removed {freed.layers} layers and {freed.blobs} blobs; freed {format_bytes(freed.bytes)}")
    _show(as_json, freed, lines)


__all__ = ["artifacts_group"]
