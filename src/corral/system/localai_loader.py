"""LocalAI's `LoadModel`: loads a model in a running backend process."""

from collections.abc import Mapping
from typing import Any, Protocol

from corral.core.models.config import ModelConfig
from corral.core.models.load_plan import local_name
from corral.core.models.localai_options import StagedModel, model_options
from corral.formats.localai_proto import MODEL_OPTIONS, RESULT
from corral.formats.protobuf import BadMessage
from corral.system.grpc_channel import BackendFailed, GrpcChannel


class LoadTarget(Protocol):
    @property
    def address(self) -> str: ...

    @property
    def token(self) -> str: ...


async def load_model(address: str, token: str, options: Mapping[str, Any], *, within_s: float) -> None:
    """`options` come from `core.model_options`. Raises CorralError with the backend's own error text.

    A time-out does not stop the load; only ending the process does."""
    channel = GrpcChannel(address, token)
    try:
        request = MODEL_OPTIONS.encode(options)
        reply = RESULT.decode(await channel.unary("LoadModel", request, within_s=within_s))
    except BadMessage as error:
        raise BackendFailed(f"LoadModel at {address}: {error}") from error
    finally:
        await channel.close()
    if not reply.get("success"):
        raise BackendFailed(f"the backend could not load the model: {reply.get('message') or 'no reason given'}")


class LocalAiLoader:
    """Loads models for load jobs. `shared_token` is for processes of LocalAI's workers, which have no own token."""

    def __init__(self, *, shared_token: str = "") -> None:
        self._shared_token = shared_token

    async def load(
        self,
        config: ModelConfig,
        replica: LoadTarget,
        *,
        paths: Mapping[str, str],
        fitted: Mapping[str, int],
        within_s: float,
    ) -> None:
        """`paths`: the files' paths on the node, by their names in the configuration. `fitted`: as the node's worker
        planned it."""
        staged = StagedModel(models_dir=models_dir_of(config, paths), paths=paths)
        token = replica.token or self._shared_token
        await load_model(replica.address, token, model_options(config, staged, fitted=fitted), within_s=within_s)


def models_dir_of(config: ModelConfig, paths: Mapping[str, str]) -> str:
    """The directory on the node that the configuration's relative names refer to."""
    name, path = local_name(config, config.model), paths.get(config.model, "")
    return path.removesuffix(name).rstrip("/") if name and path.endswith(f"/{name}") else ""
