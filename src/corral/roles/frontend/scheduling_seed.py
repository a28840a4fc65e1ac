"""Scheduling from a setting or a file, applied at every start."""

import json

from corral.core.errors import InvalidInput, InvalidSetting
from corral.core.replicas.scheduling_file import parse_seed
from corral.settings.roles import FrontendSettings
from corral.store.stores import Stores
from corral.system import Disk, Ids
from corral.system.yaml import load_yaml

ACTOR = "settings"


async def seed_scheduling(settings: FrontendSettings, stores: Stores, *, ids: Ids, disk: Disk) -> None:
    """Overwrite the scheduling of the listed models; others keep theirs."""
    try:
        seeds = parse_seed(_read_json(settings.model_scheduling), source="--model-scheduling")
        path = settings.model_scheduling_config
        if path is not None:
            try:
                text = disk.read(path)
            except OSError as error:
                raise InvalidSetting(f"--model-scheduling-config: cannot read {path}: {error.strerror}") from error
            if text is None:
                raise InvalidSetting(f"--model-scheduling-config: {path} does not exist")
            seeds += parse_seed(load_yaml(text.decode()), source=str(path))
    except InvalidSetting:
        raise
    except InvalidInput as error:
        raise InvalidSetting(str(error)) from error
    for scheduling in seeds:
        await stores.scheduling.save(scheduling, actor=ACTOR, ids=ids)


def _read_json(text: str) -> object:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSetting(f"--model-scheduling is not JSON: {error}") from None
