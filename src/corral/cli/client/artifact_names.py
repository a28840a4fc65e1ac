"""From a name somebody typed to what it means, or to the name they may have meant."""

from difflib import get_close_matches

from corral.artifacts import Artifacts, BackendRequest, Catalogue
from corral.artifacts.errors import ArtifactError, NotInstalled, NoVariantFits
from corral.cli.program_name import command


async def request_for_name(artifacts: Artifacts, name: str, capability: str, *, substitute: bool) -> BackendRequest:
    catalogue = await artifacts.read_catalogue()
    try:
        return artifacts.request_for(catalogue, name, capability, substitute=substitute)
    except NoVariantFits as error:
        if is_known(catalogue, name):
            raise NoVariantFits(f"{error} Name the kind of node it is meant for with --capability.") from error
        raise NotInstalled(" ".join([str(error), *await hints(artifacts, catalogue, name)])) from error


def is_known(catalogue: Catalogue, name: str) -> bool:
    return (name.partition("@")[2] or name).lower() in catalogue.by_name


async def hints(artifacts: Artifacts, catalogue: Catalogue, name: str) -> list[str]:
    """Why a name of no backend may have been typed."""
    found = [f"Gallery {status.name}: {status.problem}" for status in catalogue.galleries if status.problem]
    try:
        models = {entry.name.lower() for entry in await artifacts.read_models()}
    except ArtifactError:
        models = set()
    if name.lower() in models:
        return [*found, "There is a model of that name: add --model."]
    if close := get_close_matches(name.lower(), catalogue.by_name, n=3):
        found.append(f"Did you mean {' or '.join(catalogue.by_name[match].name for match in close)}?")
    return [*found, f"`{command('artifacts list --available')}` shows what there is."]
