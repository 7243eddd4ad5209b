"""Authentication: who may read the dashboard's data, and change jobs through it. Pure.

A browser sends the requests of any open page, with all cookies of this address; so the dashboard
has no cookies. Data and changes need a token in a header. The script of another page cannot read
this token, and cannot send such a header here. The token is never part of an address, so no logged
or mailed address reveals it.
"""

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["ACTION_LIMIT_BYTES", "Refusal", "action_refusal", "is_loopback", "read_refusal"]

ACTION_LIMIT_BYTES = 4096
Refusal = tuple[HTTPStatus, str]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address or a name such as localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_refusal(
    headers: Mapping[str, str], token: str, *, is_open: bool = False
) -> Refusal | None:
    """Return why this request gets no data; None if it gets data.

    `is_open` is true if anybody may see the requested data.

    Without a token only requests to names of this machine are answered, since a foreign page may
    let its own name point to this machine (DNS rebinding).
    """
    if not token:
        name = _hostname(headers.get("Host", ""))
        if name is None or not is_loopback(name):
            return HTTPStatus.FORBIDDEN, "This name is not one of this machine."
        return None
    given = headers.get("Authorization", "").encode("utf-8", "backslashreplace")
    if is_open or hmac.compare_digest(given, f"Bearer {token}".encode()):
        return None
    return HTTPStatus.UNAUTHORIZED, "The token is wanted."


def action_refusal(headers: Mapping[str, str], token: str, *, is_allowed: bool) -> Refusal | None:
    """Return why this request may not change anything; None if it may. The body is not checked.

    A browser names the page that asks (Origin): only the dashboard's own page may change something.
    Programs name no page.
    """
    if not is_allowed or not token:
        return HTTPStatus.FORBIDDEN, (
            "This dashboard changes nothing: start it with --allow-actions and --token-file to "
            "have it do so."
        )
    if refusal := read_refusal(headers, token):
        return refusal
    origin, host = headers.get("Origin"), headers.get("Host", "")
    site = headers.get("Sec-Fetch-Site", "same-origin")
    if (origin is not None and _place(origin) != host.lower()) or site != "same-origin":
        return HTTPStatus.FORBIDDEN, (
            f"A page of {origin or 'another address'} asks for it, and only the dashboard's own "
            f"may, which is at {host}. Behind a proxy: have it pass on the Host header."
        )
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "An action is application/json."
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()):
        return HTTPStatus.LENGTH_REQUIRED, "An action has a Content-Length."
    if len(length) > len(str(ACTION_LIMIT_BYTES)) or int(length) > ACTION_LIMIT_BYTES:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {ACTION_LIMIT_BYTES} bytes."
    return None


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _place(origin: str) -> str:
    """Return the host and port of an origin; empty if it has none, such as `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
