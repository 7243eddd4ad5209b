"""Addresses of etcd as operators write them."""

import pytest

from elasticd.errors import CallError
from elasticd.store.address import parse_addresses


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://host:1234", "http://host:1234"),
        ("https://host:1234/", "https://host:1234"),
        ("host:1234", "http://host:1234"),
        ("http://host", "http://host:2379"),
        ("http://[::1]:1234", "http://[::1]:1234"),
        ("http://10.0.0.1:1234", "http://10.0.0.1:1234"),
    ],
)
def test_usual_spellings_are_understood(text: str, url: str) -> None:
    """And are written in one way from then on."""
    (address,) = parse_addresses([text])
    assert address.url == url
    assert address.target == f"dns:///{url.split('://')[1]}"


def test_list_with_commas_is_taken_apart() -> None:
    """As etcdctl takes it; the same one twice counts once."""
    found = parse_addresses(["http://a:1, http://b:2", "http://a:1"])
    assert [address.url for address in found] == ["http://a:1", "http://b:2"]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ftp://a:1",
            "http://a:99999",
            "http://a:0",
            "http://a:1/x",
            "http://:1",
            "::1",
            "http://[",
        ),
        # What `http://etcd.$NAMESPACE.svc:2379` is without that variable; no resolver takes these.
        *("http://etcd..svc:1", "http://.svc:1", f"http://{'x' * 64}:1", "http://x\udcff:1"),
    ],
)
def test_what_is_no_address_is_refused_with_its_text(text: str) -> None:
    """The operator sees what was wrong and how to write it."""
    with pytest.raises(CallError, match="is not understood: write http://host:2379") as caught:
        parse_addresses([text])
    assert repr(text) in str(caught.value)


def test_mixed_schemes_are_refused() -> None:
    """One set of TLS settings cannot serve both."""
    with pytest.raises(CallError, match="mix http and https"):
        parse_addresses(["http://a:1", "https://b:1"])


def test_no_address_is_refused() -> None:
    """Also a list of nothing but commas."""
    with pytest.raises(CallError, match="No address of etcd was given"):
        parse_addresses([" , "])


@pytest.mark.parametrize(
    "text", ["http://me:s3cret@host:1", "me:s3cret@host", "http://me:s3cret@h:x"]
)
def test_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    """Messages and logs show addresses."""
    with pytest.raises(CallError, match="settings of their own") as caught:
        parse_addresses([text])
    assert "s3cret" not in str(caught.value)


def test_a_unix_socket_is_an_address() -> None:
    """What is not encrypted need not be: nobody but the socket's users can listen."""
    (address,) = parse_addresses(["unix:///tmp/elasticd-x/etcd:1"])
    assert address.url == "unix:///tmp/elasticd-x/etcd:1"
    assert address.target == "unix:/tmp/elasticd-x/etcd:1"
