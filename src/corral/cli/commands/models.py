"""`corral models`: model configurations, replicas and scheduling."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from corral.cli.client.api import Api, client_command
from corral.cli.client.weights_config import config_for, is_location
from corral.cli.commands.endpoints import attach_endpoint, detach_endpoint, list_endpoints
from corral.cli.commands.model_history import roll_back_model, show_history
from corral.cli.display.output import clean, print_json, print_table, show_time, warn_of_galleries
from corral.cli.display.replicas import (
    NOTHING,
    Running,
    desired_words,
    loading_line,
    notes,
    places,
    read_running,
    state_words,
)
from corral.cli.display.revisions import (
    if_match,
    name_revision,
    pending_note,
    report_edit,
    restore_note,
    warn_of_config,
)
from corral.cli.program_name import command
from corral.core.causes import join_reasons
from corral.core.errors import CorralError, Forbidden, InvalidInput, TimedOut
from corral.system import SystemClock, SystemDisk
from corral.system.clock import pause

LOAD_WITHIN_S = 900.0
LOOK_EVERY_S = 2.0
ENDED_WITHIN_S, ENDED_LOOK_S = 60.0, 0.2


@click.group("models")
def models_group() -> None:
    """Install, attach, configure, load and scale models."""


models_group.add_command(show_history)
models_group.add_command(roll_back_model)
models_group.add_command(attach_endpoint)
models_group.add_command(detach_endpoint)
models_group.add_command(list_endpoints)


@models_group.command("list")
@client_command
def list_models(api: Api) -> None:
    """List configured models, with their replicas."""
    try:
        models = api.call("GET", "api", "models")
    except Forbidden:
        _list_usable(api)
        return
    running = read_running(api)
    if api.as_json:
        print_json([{**model, "running": running.get(model["name"], NOTHING)} for model in models])
        return
    if not models:
        click.echo(f"No models yet. `{command('models available')}` lists models to install. A small one to try:")
        click.echo(f"  {command('models install smollm2')}")
        return
    print_table(
        ("NAME", "STATE", "READY", "DESIRED", "BACKEND", "USE", "ALIASES", "REVISION", "CHANGED (UTC)", "NOTE"),
        [
            (
                model["name"],
                *_running_cells(model, running.get(model["name"], NOTHING)),
                model["backend"] or "-",
                ",".join(model["known_usecases"]) or "-",
                ",".join(model["aliases"]) or "-",
                f"{model['number']} ({model['revision'][:12]})",
                show_time(model["changed_at"]),
                _note(model, running.get(model["name"], NOTHING)),
            )
            for model in models
        ],
    )


def _running_cells(model: dict[str, Any], running: Running) -> tuple[str, str, str]:
    if model["alias_of"]:
        return "-", "-", "-"
    if model["backend"] == "attached":  # nothing is started for it
        return "ready" if running["ready"] else "not reachable", str(running["ready"]), "-"
    return state_words(running), str(running["ready"]), desired_words(running)


def _list_usable(api: Api) -> None:
    """Lists the models that a key without the admin scope may use."""
    usable = api.call("GET", "v1", "models")["data"]
    if api.as_json:
        print_json(usable)
    elif usable:
        print_table(("NAME",), [(model["id"],) for model in usable])
    else:
        click.echo("This key may not use any model.")


def _note(model: dict[str, Any], running: Running) -> str:
    if model["alias_of"]:
        return f"alias of {model['alias_of']}"
    first = ["disabled"] if model["disabled"] else []
    pending = pending_note(model["name"], model["pending"])
    return join_reasons([*first, *notes(running, told=pending), pending])


@models_group.command("available")
@client_command
@click.argument("term", required=False, default="")
@click.option("--limit", type=click.IntRange(1, 5000), default=50, show_default=True, help="Maximum number of models.")
def list_available(api: Api, term: str, limit: int) -> None:
    """List models to install; with TERM, only matching ones.

    TERM is searched for in names, descriptions and tags."""
    page = api.call(
        "GET", "api", "models", "available", query=[("term", term), ("limit", str(limit))], within_s=LOAD_WITHIN_S
    )
    unread = warn_of_galleries(page.get("galleries", []))
    if api.as_json:
        print_json(page)
        return
    if not page["models"] and unread:
        click.echo(f"No model matches {term!r} in the galleries that could be read.")
        return
    if not page["models"]:
        click.echo(f"No gallery has a model that matches {term!r}." if term else "The galleries are empty.")
        return
    print_table(
        ("NAME", "GALLERY", "SIZE", "TAGS", "INSTALLED", "DESCRIPTION"),
        [
            (
                model["name"],
                model["gallery"],
                model["size"] or "-",
                ",".join(model["tags"][:4]) or "-",
                "yes" if model["installed"] else "",
                " ".join(model["description"].split())[:70],
            )
            for model in page["models"]
        ],
    )
    left = page["total"] - len(page["models"])
    if left > 0:
        click.echo(f"and {left} more; give a TERM or raise --limit", err=True)


@models_group.command("install")
@client_command
@click.argument("names", nargs=-1)
@click.option("--as", "install_as", default="", help="Install the model under this name.")
@click.option("--file", "files", multiple=True, help="Install this configuration (YAML); `-` reads standard input.")
@click.option(
    "--directory",
    default=None,
    help="Install all configurations in this directory of the frontend: its models directory, or one inside.",
)
@click.option("--replace", is_flag=True, help="With --directory: replace models that already exist.")
@click.option("--force", is_flag=True, help="With --file and --directory: accept fields that Corral does not know.")
def install_models(
    api: Api,
    names: tuple[str, ...],
    install_as: str,
    files: tuple[str, ...],
    directory: str | None,
    replace: bool,
    force: bool,
) -> None:
    """Install models from a gallery, weights or configuration.

    NAMES are models of a gallery, or locations of weights (hf://owner/repository/file.gguf). Install your own
    configurations with --file or --directory.

    The nodes that serve a model download its weights when it is first loaded."""
    if not names and not files and directory is None:
        raise InvalidInput(f"give the name of a model (see `{command('models available')}`), --file or --directory")
    if install_as and len(names) != 1:
        raise InvalidInput("--as requires exactly one model")
    added = []
    for name in names:
        if is_location(name):
            added.append(api.call("POST", "api", "models", body={"config": config_for(name, name=install_as)}))
            continue
        body = {"name": name, "as": install_as}
        added.append(api.call("POST", "api", "models", "install", body=body, within_s=LOAD_WITHIN_S))
    for name in files:
        with _naming(name):
            given = {"config": _read_text(name), "force": force}
            added.append(api.call("POST", "api", "models", body=given))
    imported = None
    if directory is not None:
        request = {"directory": directory, "replace": replace, "force": force}
        imported = api.call("POST", "api", "models", "import", body=request)
    if api.as_json:
        print_json({"added": added, "imported": imported})
        return
    for model in added:
        click.echo(f"{clean(model['name'])}: installed (backend {clean(model['backend']) or 'unknown'})")
        warn_of_config(model)
        _print_next_step(api, model)
    if imported is not None:
        _show_import(imported)


def _read_text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        content = SystemDisk().read(Path(name))
    except OSError as error:
        raise InvalidInput(f"cannot read {name}: {error.strerror}") from error
    if content is None:
        raise InvalidInput(f"no such file: {name}")
    return content.decode("utf-8", "replace")


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Adds the file's name to the error about its configuration."""
    try:
        yield
    except InvalidInput as error:
        name = "standard input" if file == "-" else file
        raise InvalidInput(str(error) if name in str(error) else f"{name}: {error}") from error


def _print_next_step(api: Api, model: dict[str, Any]) -> None:
    """How to use the model, or why no node can serve it."""
    if model["disabled"]:
        return
    fit = None if model["alias_of"] else api.call("GET", "api", "models", model["name"], "fit")
    if fit is not None and not fit["fits"]:
        click.echo(f"no node can serve it now: {clean(fit['reason'])}", err=True)
    elif not model["embeddings"] and "chat" in (model["known_usecases"] or ["chat"]):
        chat = command(f"chat {clean(model['name'])}")
        click.echo(f"Chat with it: {chat} (the first answer waits for the load)")


def _show_import(imported: dict[str, Any]) -> None:
    click.echo(
        f"{imported['directory']}: {len(imported['saved'])} installed or changed,"
        f" {len(imported['unchanged'])} unchanged, {len(imported['refused'])} rejected"
    )
    for name in imported["saved"]:
        click.echo(f"  {clean(name)}")
    for item in imported["refused"]:
        click.echo(f"  {clean(item['file'])}: {clean(item['reason'])}", err=True)
    if imported["refused"]:
        raise click.exceptions.Exit(1)


@models_group.command("show")
@client_command
@click.argument("model")
def show_model(api: Api, model: str) -> None:
    """Show a model: its replicas and its configuration."""
    found = api.call("GET", "api", "models", model)
    running = read_running(api).get(found["alias_of"] or found["name"], NOTHING)
    if api.as_json:
        print_json({**found, "running": running})
        return
    named = name_revision(found["number"], found["revision"])
    click.echo(f"# {named}, {show_time(found['changed_at'])} UTC, by {clean(found['changed_by'])}")
    click.echo(f"# {state_words(running)}; {running['ready']} ready, desired: {desired_words(running)}")
    if running["replicas"]:
        click.echo(f"# on {places(running)}")
    pending = pending_note(found["name"], found["pending"])
    restorable = restore_note(found["name"], found["number"], found["restorable"])
    for note in (*filter(None, (pending, restorable)), *notes(running, told=pending)):
        click.echo(f"# {note}")
    click.echo("".join(char if char.isprintable() or char in "\n\t" else "?" for char in found["config"]).rstrip())


@models_group.command("edit")
@client_command
@click.argument("model")
@click.option("--file", default=None, help="Read the new configuration from this file; `-` reads standard input.")
@click.option("--force", is_flag=True, help="Accept unknown fields and unknown backends.")
@click.option("--comment", default="", help="Why, for the history.")
def edit_model(api: Api, model: str, file: str | None, force: bool, comment: str) -> None:
    """Edit a model's configuration in $EDITOR.

    It is checked before it is saved. If replicas must be reloaded, the old ones keep serving until a replica with the
    new configuration answers. If it cannot be loaded, the old revision keeps serving, and `models show` tells why."""
    found = api.call("GET", "api", "models", model)
    if file is not None:
        with _naming(file):
            report_edit(api, found, _put(api, found, _read_text(file), force, comment))
        return
    if not sys.stdin.isatty():
        raise InvalidInput("not a terminal: pass the configuration with --file")
    text = found["config"]
    while True:
        edited = click.edit(text, extension=".yaml")
        if edited is None or edited == found["config"]:
            click.echo(f"{found['name']}: unchanged")
            return
        text = edited
        try:
            answer = _put(api, found, text, force, comment)
        except CorralError as error:
            click.echo(f"corral: {error}", err=True)
            click.confirm("Edit again? (No discards your changes)", default=True, abort=True)
        else:
            report_edit(api, found, answer)
            return


def _put(api: Api, found: dict[str, Any], text: str, force: bool, comment: str) -> Any:
    body = {"config": text, "force": force, "comment": comment}
    return api.call("PUT", "api", "models", found["name"], body=body, headers=if_match(found))


@models_group.command("delete")
@client_command
@click.argument("model")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def delete_model(api: Api, model: str, yes: bool) -> None:
    """Delete a model and stop its replicas."""
    found = api.call("GET", "api", "models", model)
    if not yes and not sys.stdin.isatty():
        raise InvalidInput("not a terminal: pass --yes to confirm")
    if not yes:
        click.confirm(f"Delete {found['name']} and stop its replicas?", abort=True)
    answer = api.call("DELETE", "api", "models", found["name"])
    if api.as_json:
        print_json(answer)
    else:
        click.echo(f"{found['name']}: deleted")


@models_group.command("load")
@client_command
@click.argument("model")
@click.option("--node", default="", help="Load it on this node (name or id), even if other nodes serve it.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for completion and show progress.")
@click.option("--timeout", "within_s", type=click.FloatRange(0), default=LOAD_WITHIN_S, show_default=True,
              metavar="SECONDS", help="Maximum waiting time. The load continues after that.")  # fmt: skip
def load_model(api: Api, model: str, node: str, wait: bool, within_s: float) -> None:
    """Load a model before the first request."""
    name = _served_name(api, model)
    on: dict[str, Any] = {"node": api.find_node(node)["id"]} if node else {}
    retry = True  # a failed load is retried once for this command, not at each poll
    printed, clock = "", SystemClock()
    deadline_s = clock.monotonic_s() + within_s
    while True:
        left_s = max(0.0, deadline_s - clock.monotonic_s())
        request = {**on, "retry": retry, "wait_s": min(LOOK_EVERY_S, left_s) if wait else 0}
        answer = api.call("POST", "api", "models", name, "load", body=request, within_s=LOAD_WITHIN_S)
        retry = False
        loading = answer.get("loading")
        if not wait or not loading:
            break
        line = loading_line(name, loading)
        if line != printed and not api.as_json:
            click.echo(line, err=True)
            printed = line
        if not left_s:
            why = f": {clean(loading['reason'])}" if loading.get("reason") else ""
            raise TimedOut(
                f"{clean(name)} is still {loading['state']} after {within_s:.0f} s{why}. The load continues."
            )
    if api.as_json:
        print_json(answer)
    else:
        where = f" on {clean(node)}" if node else ""
        click.echo(loading_line(name, loading) if loading else f"{clean(name)}: loaded{where}")


@models_group.command("unload")
@client_command
@click.argument("model")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its processes have stopped.")
def unload_model(api: Api, model: str, wait: bool) -> None:
    """Stop all replicas of a model. The next request loads it again."""
    name = _served_name(api, model)
    before = read_running(api).get(name, NOTHING)
    answer = api.call("POST", "api", "models", name, "unload", body={}, within_s=LOAD_WITHIN_S)
    if wait:
        _wait_until_ended(api, name)
    ran = bool(before["replicas"] or before["loads"])
    done = "unloaded" if wait else "unloading"
    _print(
        api, answer, f"{clean(name)}: {done}" if ran else f"{clean(name)}: not loaded, so there was nothing to unload"
    )


def _wait_until_ended(api: Api, name: str) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + ENDED_WITHIN_S
    while stopping := [one for one in read_running(api).get(name, NOTHING)["replicas"] if one["state"] == "stopping"]:
        if clock.monotonic_s() > deadline_s:
            where = ", ".join(clean(one["node"]) for one in stopping)
            raise TimedOut(f"{clean(name)} has not stopped on {where} yet. Corral retries until it has.")
        pause(ENDED_LOOK_S)


@models_group.command("scale")
@client_command
@click.argument("model")
@click.argument("replicas", type=click.IntRange(0), required=False)
@click.option("--min", "least", type=click.IntRange(0), default=None, help="Minimum number of replicas.")
@click.option(
    "--max", "most", type=click.IntRange(0), default=None, help="Maximum number of replicas; 0 means no limit."
)
@click.option("--everywhere", is_flag=True, help="One replica on every node that can run it.")
@click.option("--selector", default="", help="Only on nodes with these labels: tier=fast,room=b2.")
def scale_model(
    api: Api,
    model: str,
    replicas: int | None,
    least: int | None,
    most: int | None,
    everywhere: bool,
    selector: str,
) -> None:
    """Set the number of replicas of a model.

    REPLICAS sets both --min and --max. With `--min 0` the model is loaded on demand and scales to zero."""
    if everywhere == any(given is not None for given in (replicas, least, most)):
        raise InvalidInput("give a number of replicas, --min and --max, or --everywhere")
    name = _served_name(api, model)
    low = _first_given(least, replicas, 0)
    high = _first_given(most, replicas, 0)
    body: dict[str, Any] = {"model_name": name, "node_selector": _labels(selector), "spread_all": everywhere}
    if not everywhere:
        body |= {"min_replicas": low, "max_replicas": high}
    answer = api.call("POST", "api", "nodes", "scheduling", body=body)
    desired = "one replica on every node that can run it" if everywhere else _count_words(low, high)
    _print(api, answer, f"{clean(name)}: {desired}")
    possible = answer.get("possible_replicas")
    if possible is not None and possible < low and not api.as_json:
        click.echo(f"Only {possible} of {low} can be placed now: {clean(answer['possible_reason'])}")
        click.echo(
            "The others wait for capacity. Add a node, or raise the limit of a node with"
            f" `{command('nodes limit NODE REPLICAS')}`."
        )
    elif everywhere and possible == 0 and not api.as_json:
        click.echo(f"No node can run it now: {clean(answer['possible_reason'])}")


def _count_words(low: int, high: int) -> str:
    if low == high:
        return f"{low} {'replica' if low == 1 else 'replicas'}, always" if low else "on demand (scales to zero)"
    least = f"at least {low} {'replica' if low == 1 else 'replicas'}" if low else "on demand (scales to zero)"
    return f"{least}, {f'at most {high}' if high else 'no maximum'}"


def _served_name(api: Api, model: str) -> str:
    """The model's name; for an alias, the name of its model."""
    found = api.call("GET", "api", "models", model)
    return str(found["alias_of"] or found["name"])


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise InvalidInput(f"{item!r} is not a label; use for example tier=fast,room=b2")
        labels[key] = value
    return labels


def _print(api: Api, answer: Any, line: str) -> None:
    if api.as_json:
        print_json(answer)
    else:
        click.echo(line)
