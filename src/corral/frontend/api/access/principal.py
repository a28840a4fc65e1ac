"""The caller, as the edge found it."""

from typing import Annotated

from fastapi import Depends, Request

from corral.frontend.auth.rules import Principal


async def _principal(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


async def _actor(request: Request) -> str:
    return (await _principal(request)).actor


Caller = Annotated[Principal, Depends(_principal)]
Actor = Annotated[str, Depends(_actor)]
"""Who did it, for the audit log."""
