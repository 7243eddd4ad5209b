"""Who is told something, and who may change something."""

import pytest

from elasticd.dashboard.access import action_refusal, is_loopback, read_refusal

TOKEN = "a-token-of-some-length"
GOOD = {
    "Host": "gpu-1:8900",
    "Authorization": f"Bearer {TOKEN}",
    "Origin": "http://gpu-1:8900",
    "Sec-Fetch-Site": "same-origin",
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": "40",
}


def refused(**other: str | None) -> int:
    """Return the status for the good request with other headers; 0: it is not refused."""
    changed = {name.replace("_", "-").title(): value for name, value in other.items()}
    headers = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}
    found = action_refusal(headers, TOKEN, is_allowed=True)
    return found[0] if found is not None else 0


def test_page_of_the_dashboard_and_programs_may() -> None:
    """A program names no page that asks; behind a proxy with TLS the page's address is https."""
    assert refused() == 0
    assert refused(origin=None, sec_fetch_site=None) == 0
    assert refused(host="elasticd.example", origin="https://elasticd.example") == 0
    assert refused(host="[::1]:8900", origin="http://[::1]:8900") == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": "Bearer \u00fc\udc80"}, 401),
        ({"cookie": f"token={TOKEN}", "authorization": None}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://gpu-1:8901"}, 403),
        ({"origin": "http://gpu-1:8900.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": None, "sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": None}, 415),
        ({"content_length": None}, 411),
        ({"content_length": "-1"}, 411),
        ({"content_length": "\u00b2"}, 411),
        ({"content_length": "4097"}, 413),
        ({"content_length": "9" * 9_000}, 413),
    ],
)
def test_everything_else_is_refused(headers: dict[str, str | None], status: int) -> None:
    """The token never counts from a cookie, and a page of another place never asks."""
    assert refused(**headers) == status


@pytest.mark.parametrize(("token", "is_allowed"), [(TOKEN, False), ("", True), ("", False)])
def test_nobody_may_without_the_flag_and_a_token(token: str, is_allowed: bool) -> None:
    """Whatever the request says."""
    found = action_refusal(GOOD, token, is_allowed=is_allowed)
    assert found is not None
    assert found[0] == 403 and "--allow-actions and --token-file" in found[1]


def test_without_a_token_only_names_of_this_machine_are_told_anything() -> None:
    """DNS rebinding: the browser believes that somebody else's name points here."""
    assert read_refusal({"Host": "127.0.0.1:8900"}, "") is None
    assert read_refusal({"Host": "[::1]:8900"}, "") is None
    for host in ("evil.example", "", "[", "127.0.0.1.evil.example:8900", "@localhost@evil.example"):
        found = read_refusal({"Host": host}, "", is_open=True)
        assert found is not None and found[0] == 403, host


def test_loopback_is_known() -> None:
    """Only there it goes without a token."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "::", "gpu-1", ""))
