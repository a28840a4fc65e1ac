"""`/api/models/NAME/revisions`: the history of a model's configuration, and going back in it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from corral.core.errors import InvalidInput, NotFound
from corral.core.models.changes import find_changes
from corral.core.models.revisions import RevisionState
from corral.frontend.api.access.principal import Actor
from corral.frontend.api.models.if_match import IfMatch, read_if_match
from corral.frontend.api.models.view import ModelDetail, view_model_detail
from corral.frontend.api.times import time_of
from corral.frontend.models.check import ConfigChecks
from corral.store.serving.models import ModelStore, StoredModel, parse_config_text
from corral.store.serving.revision_rows import ModelRevision

COMMENT_MOST = 500
Comment = Annotated[str, Field(max_length=COMMENT_MOST)]


class RevisionView(BaseModel):
    number: int
    revision: str
    """A hash of the content: two numbers may share it."""
    state: RevisionState
    reason: str
    """Why it failed, or what it waits for."""
    comment: str
    config: str
    """The YAML as it was written; empty for a deletion."""
    at: datetime
    actor: str
    served_at: datetime | None
    """When a replica with it was first ready; null if none ever was."""


class FieldChangeView(BaseModel):
    field: str
    """The path of the field, such as `parameters.model`."""
    before: str | None
    """As JSON; null if the field was not there."""
    after: str | None
    """As JSON; null if the field is gone."""


class RevisionChanges(BaseModel):
    number: int
    against: int | None
    """The revision it is compared with; null if there is none before it."""
    changes: list[FieldChangeView]
    """Empty where only comments or the order of fields differ."""


class Rollback(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: Annotated[str, Field(max_length=64)] = ""
    """The revision to go back to, by its number or the beginning of its hash. Without it: the one that serves while a
    newer one is pending, otherwise the last one that served before."""
    comment: Comment = ""


def history_routes(models: ModelStore, checks: ConfigChecks, notify_routes: Callable[[], Awaitable[None]]) -> APIRouter:
    """Goes before the other routes of models, whose path parameters would match these paths."""
    router = APIRouter(prefix="/api/models", tags=["models"])

    @router.get("/{name:path}/revisions")
    async def list_revisions(name: str) -> list[RevisionView]:
        """Lists the revisions of a model, newest first. A deleted model still has them."""
        return [_view(item) for item in await _read_history(models, name)]

    @router.get("/{name:path}/revisions/{revision}/changes")
    async def show_changes(
        name: str, revision: str, against: Annotated[str, Query(max_length=64)] = ""
    ) -> RevisionChanges:
        """Shows which fields a revision changed, compared with the one before it or with another one."""
        history = await _read_history(models, name)
        shown = find_revision(history, name, revision)
        base = find_revision(history, name, against) if against else _find_previous(history, shown)
        changes = find_changes(_document(base), _document(shown))
        return RevisionChanges(
            number=shown.number,
            against=base.number if base is not None else None,
            changes=[FieldChangeView(field=one.field, before=one.before, after=one.after) for one in changes],
        )

    @router.post("/{name:path}/rollback")
    async def roll_back(
        name: str, actor: Actor, response: Response, body: Rollback | None = None, if_match: IfMatch = None
    ) -> ModelDetail:
        """Goes back to an earlier configuration. A pending one is discarded, and replicas that serve keep running.
        Otherwise it is a new revision with the earlier content, which is loaded and tried like an edit."""
        asked = body or Rollback()
        model = await models.read(name)
        target = pick_rollback(model, await models.read_revisions(model.name), asked.to)
        comment = ": ".join(filter(None, (f"rollback to revision {target.number}", asked.comment)))
        expected = read_if_match(if_match) or model.newest.revision
        saved = await models.save(target.text, actor, expected=expected, comment=comment)
        await notify_routes()
        return await view_model_detail(saved, response, models, checks)

    return router


async def _read_history(models: ModelStore, name: str) -> Sequence[ModelRevision]:
    """Newest first. What a pending revision waits for is known before it has failed."""
    try:
        model: StoredModel | None = await models.read(name)
    except NotFound:
        history = await models.read_revisions(name)
        if not history:
            raise
        return history
    assert model is not None
    pending = model.pending
    return [
        replace(item, reason=pending.reason) if pending is not None and item.number == pending.number else item
        for item in await models.read_revisions(model.name)
    ]


def _view(item: ModelRevision) -> RevisionView:
    return RevisionView(
        number=item.number,
        revision=item.revision,
        state=item.state,
        reason=item.reason,
        comment=item.comment,
        config=item.text,
        at=time_of(item.at),
        actor=item.actor,
        served_at=time_of(item.served_at) if item.served_at is not None else None,
    )


def _document(item: ModelRevision | None) -> dict[str, object]:
    return dict(parse_config_text(item.text).document) if item is not None and item.text else {}


def _find_previous(history: Sequence[ModelRevision], shown: ModelRevision) -> ModelRevision | None:
    """The one that was current when it was written: failed and discarded ones changed nothing."""
    skipped = (RevisionState.FAILED, RevisionState.DISCARDED, RevisionState.PENDING)
    return next((one for one in history if one.number < shown.number and one.state not in skipped), None)


def find_revision(history: Sequence[ModelRevision], model: str, text: str) -> ModelRevision:
    """By number, or by the beginning of its hash: then the newest one with that content."""
    numbered = [one for one in history if str(one.number) == text]
    if numbered:
        return numbered[0]
    found = {one.revision: one for one in reversed(history) if one.revision.startswith(text.lower())}
    if not found:
        raise NotFound(f"{model} has no revision {text!r}; `corral models history {model}` lists its revisions")
    if len(found) > 1:
        raise InvalidInput(f"{len(found)} revisions of {model} begin with {text!r}; give more characters")
    return next(iter(found.values()))


def pick_rollback(model: StoredModel, history: Sequence[ModelRevision], to: str) -> ModelRevision:
    if to:
        found = find_revision(history, model.name, to)
        if not found.text:
            raise InvalidInput(f"revision {found.number} is the deletion of {model.name}, not a configuration")
        return found
    if model.pending is not None:
        return next(one for one in history if one.number == model.number)
    earlier = [one for one in history if one.number < model.number and one.text and one.revision != model.revision]
    served = [one for one in earlier if one.served_at is not None]
    valid = [one for one in earlier if one.state not in (RevisionState.FAILED, RevisionState.DISCARDED)]
    target = next(iter([*served, *valid]), None)
    if target is None:
        raise NotFound(
            f"{model.name} has no earlier revision to go back to; `corral models history {model.name}` lists them all"
        )
    return target
