"""Who may see what the dashboard shows, and who may change something through it. Pure.

A browser carries out what any page that is open in it asks for, with all cookies of this address:
so there are none. What opens the data, and every change, is a token in a header that another page's
script can neither read nor send here unasked; no address ever holds it, so none that is logged or
mailed tells it.
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
    """True if only this machine can reach an address, or a name that is known to mean one."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_refusal(
    headers: Mapping[str, str], token: str, *, is_open: bool = False
) -> Refusal | None:
    """Say why this request is told nothing; None: it is told. `is_open`: all know what it asks for.

    Without a token only names of this machine are answered, as somebody else's page may have had
    its own name point here (DNS rebinding).
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
    """Say why this request may not change anything; None: it may, if its body makes sense.

    A browser names the page that asks (Origin): only the dashboard's own may. Programs name none.
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
    """Return host and port of an origin; empty for one that has none, as `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
