"""The authenticated client of a request, as the middleware found it."""

from typing import Annotated

from fastapi import Depends, Request

from corral.frontend.auth.rules import Principal


async def _actor(request: Request) -> str:
    principal: Principal = request.state.principal
    return principal.actor


Actor = Annotated[str, Depends(_actor)]
"""The name of the client, for the audit log."""
