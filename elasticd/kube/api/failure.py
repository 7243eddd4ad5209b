"""Translates an unsuccessful answer of the API server to an error."""

import json
from collections.abc import Mapping
from typing import Any

from elasticd.errors import ElasticdError, Fenced, NotFound, Refused, Unavailable

__all__ = ["Busy", "Failed", "Gone", "Unreached", "failure", "retry_after_s", "status_message"]

RETRY_AFTER_MOST_S = 120.0
"""The longest wait in seconds, for any Retry-After of a server, because a person waits for the
job."""
WORDS_LIMIT = 500


class Gone(Unavailable):
    """The API server does not know the changes since that version any more: list again."""


class Busy(Unavailable):
    """The API server asks for fewer requests."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Failed(Unavailable):
    """The API server failed at this one request (500, or no answer to a write), for instance
    because a webhook did not answer; another request may succeed.
    """


class Unreached(Unavailable):
    """There was no connection, so the API server has not seen the request."""


def failure(
    code: int, body: bytes, headers: Mapping[str, str], *, host: str, what: str
) -> ElasticdError:
    """Return the error to raise; `what` names the request, as in "list nodes"."""
    said = status_message(body) or f"HTTP {code}"
    match code:
        case 401:
            return Refused(
                f"The API server at {host} does not know who asks ({said}): the token or the "
                "certificate is wrong or has expired; look at the kubeconfig, or at the pod's "
                "ServiceAccount."
            )
        case 403:
            return Refused(
                f"The API server at {host} does not permit to {what} ({said}): grant it to the "
                "operator's user or ServiceAccount."
            )
        case 404:
            return NotFound(f"The API server at {host} cannot {what}: {said}.")
        case 409:
            return Fenced(f"The API server did not {what}: {said}.")
        case 410:
            return Gone(f"The API server at {host} cannot {what}: {said}.")
        case 408 | 429:
            pass
        case _ if 400 <= code < 500:
            return Refused(f"The API server at {host} refuses to {what}: {said}.")
    text = f"The API server at {host} cannot {what} now ({code}: {said}): try again."
    wait_s = retry_after_s(headers)
    return Failed(text) if code == 500 and not wait_s else Busy(text, wait_s)


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds for which the server wants no requests; 0 if the answer does not say."""
    text = headers.get("Retry-After", "")
    # The API server gives seconds; a date comes from a proxy, whose clock may differ from ours.
    return min(float(text), RETRY_AFTER_MOST_S) if text.isascii() and text.isdecimal() else 0.0


def status_message(body: bytes) -> str:
    """Return the message of a `Status`, on one line and without a full stop."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        status = body.decode(errors="replace")
    said = status.get("message", "") if isinstance(status, Mapping) else str(status)
    return " ".join(str(said).split())[:WORDS_LIMIT].rstrip(".")
