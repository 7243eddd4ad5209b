"""An answer over HTTP, and the signature of the functions that give one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

__all__ = ["ANSWER_TIMEOUT_S", "HttpAnswer", "PLAIN", "Route", "text_answer"]

ANSWER_TIMEOUT_S = 1.0
"""How long a route waits for the owner's thread, which answers in milliseconds unless it is
overloaded or stands still."""
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The answer of a route to a GET."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[str, str], HttpAnswer | None]
"""Answers a path and its query, on a thread that may wait; None if the path is not its own."""


def text_answer(status: HTTPStatus, sentence: str) -> HttpAnswer:
    """Return an answer that is a sentence for people."""
    return HttpAnswer(status=status, body=f"{sentence}\n".encode("utf-8", "backslashreplace"))
