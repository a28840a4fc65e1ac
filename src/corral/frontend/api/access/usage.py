"""`/api/usage`: requests and tokens by day, API key, model and node."""

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from corral.store.serving.usage import RETENTION_DAYS, UsageRow
from corral.store.stores import Stores

DAY_S = 86_400


class UsageGroup(StrEnum):
    DAY = "day"
    KEY = "key"
    MODEL = "model"
    NODE = "node"


COLUMNS = {UsageGroup.DAY: "day", UsageGroup.KEY: "key_id", UsageGroup.MODEL: "model", UsageGroup.NODE: "node_id"}


class UsageView(BaseModel):
    """The sums of one group. Fields that the usage is not grouped by are absent."""

    day: date | None = None
    key_id: str | None = None
    key_name: str | None = None
    """Null for requests without a key."""
    model: str | None = None
    node_id: str | None = None
    node_name: str | None = None
    """Null for a removed node."""
    requests: int
    tokens_in: int
    tokens_out: int


def usage_routes(stores: Stores) -> APIRouter:
    router = APIRouter(prefix="/api/usage", tags=["access"])

    @router.get("", response_model_exclude_unset=True)
    async def list_usage(
        days: Annotated[int, Query(ge=1, le=RETENTION_DAYS)] = 30,
        by: Annotated[list[UsageGroup], Query()] = [UsageGroup.KEY, UsageGroup.MODEL, UsageGroup.NODE],  # noqa: B006  FastAPI copies it
    ) -> list[UsageView]:
        """Shows answered requests and their tokens of the last `days` days, grouped by `by`, which may be repeated.
        Counts are a few seconds late."""
        rows = await stores.usage.read(days=days, by=[COLUMNS[name] for name in by])
        keys = {key.id: key.name for key in await stores.access.read_keys()} if UsageGroup.KEY in by else {}
        nodes = {str(node.id): node.name for node in await stores.nodes.read_all()} if UsageGroup.NODE in by else {}
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
