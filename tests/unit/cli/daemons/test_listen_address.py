"""What may stand after `--listen`."""

import pytest

from elasticd.cli.daemons.listen_address import listen_address
from elasticd.errors import CallError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9481", ("127.0.0.1", 9481)),
        ("[::1]:9481", ("::1", 9481)),
        ("*:0", ("*", 0)),
        ("name:1", ("name", 1)),
    ],
)
def test_an_address_of_each_family_is_read(text: str, found: tuple[str, int]) -> None:
    assert listen_address(text) == found


@pytest.mark.parametrize("text", ["9481", ":9481", "a:", "a:99999", "a:x"])
def test_what_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(CallError, match=r"write HOST:PORT.*\*:9481 for all"):
        listen_address(text)
