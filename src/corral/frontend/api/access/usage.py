"""`/api/usage`: who used how much of what, and where."""

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from corral.store.serving.usage import RETENTION_DAYS, UsageRow
from corral.store.stores import Stores

DAY_S = 86_400


class By(StrEnum):
    DAY = "day"
    KEY = "key"
    MODEL = "model"
    NODE = "node"


COLUMNS = {By.DAY: "day", By.KEY: "key_id", By.MODEL: "model", By.NODE: "node_id"}


class UsageView(BaseModel):
    """Summed over what was not asked for, which is absent."""

    day: date | None = None
    key_id: str | None = None
    key_name: str | None = None
    """None for a request without a key."""
    model: str | None = None
    node_id: str | None = None
    node_name: str | None = None
    """None for a node that is no longer there."""
    requests: int
    tokens_in: int
    tokens_out: int


def usage_routes(stores: Stores) -> APIRouter:
    router = APIRouter(prefix="/api/usage", tags=["access"])

    @router.get("", response_model_exclude_unset=True)
    async def list_usage(
        days: Annotated[int, Query(ge=1, le=RETENTION_DAYS)] = 30,
        by: Annotated[list[By], Query()] = [By.KEY, By.MODEL, By.NODE],  # noqa: B006  FastAPI copies it
    ) -> list[UsageView]:
        """Requests that were answered and their tokens, of the last `days` days; `by` may be repeated. Counts arrive
        a few seconds late."""
        rows = await stores.usage.read(days=days, by=[COLUMNS[name] for name in by])
        keys = {key.id: key.name for key in await stores.access.read_keys()} if By.KEY in by else {}
        nodes = {str(node.id): node.name for node in await stores.nodes.read_all()} if By.NODE in by else {}
        return [_view(row, keys, nodes) for row in rows]

    return router


def _view(row: UsageRow, keys: dict[str, str], nodes: dict[str, str]) -> UsageView:
    view = UsageView(requests=row.used.requests, tokens_in=row.used.tokens_in, tokens_out=row.used.tokens_out)
    if row.day is not None:
        view.day = datetime.fromtimestamp(row.day * DAY_S, UTC).date()
    if row.key_id is not None:
        view.key_id, view.key_name = row.key_id, keys.get(row.key_id)
    if row.model is not None:
        view.model = row.model
    if row.node_id is not None:
        view.node_id, view.node_name = row.node_id, nodes.get(row.node_id)
    return view
