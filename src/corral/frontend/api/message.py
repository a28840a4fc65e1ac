"""The answer of a change that has no object to show."""

from pydantic import BaseModel


class Message(BaseModel):
    message: str
