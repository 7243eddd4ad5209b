"""The testbed's own DNS answers as a cluster's does, in what the project asks of it."""

import socket
import struct
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.testbed.control.dns import addresses, answer

_OBJECTS: Mapping[str, Mapping[str, Any]] = {
    "/api/v1/namespaces/a/services/web": {"spec": {"clusterIP": "10.79.0.7"}},
    "/api/v1/namespaces/a/services/etcd": {
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True}
    },
    "/api/v1/namespaces/a/endpoints/etcd": {
        "subsets": [
            {
                "addresses": [{"ip": "10.78.0.2", "hostname": "etcd-0"}],
                "notReadyAddresses": [{"ip": "10.78.1.3", "hostname": "etcd-1"}],
            }
        ]
    },
    "/api/v1/namespaces/a/services/shy": {"spec": {"clusterIP": "None"}},
    "/api/v1/namespaces/a/endpoints/shy": {
        "subsets": [{"notReadyAddresses": [{"ip": "10.78.2.2"}]}]
    },
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web.a.svc.cluster.local", ["10.79.0.7"]),
        ("WEB.a.svc.Cluster.Local.", ["10.79.0.7"]),
        ("etcd.a.svc.cluster.local", ["10.78.0.2", "10.78.1.3"]),
        ("etcd-1.etcd.a.svc.cluster.local", ["10.78.1.3"]),
        ("etcd-9.etcd.a.svc.cluster.local", None),
        ("shy.a.svc.cluster.local", []),
        ("web.b.svc.cluster.local", None),
        ("web.a.svc.elsewhere", None),
        ("cluster.local", None),
    ],
)
def test_name_has_the_addresses_of_its_service(name: str, expected: list[str] | None) -> None:
    """Services by their own address, headless ones by their endpoints, pods by their host name."""
    assert addresses(name, _OBJECTS.get) == expected


def _query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return struct.pack("!6H", 77, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def test_reply_names_the_question_and_each_address() -> None:
    """The reply has the number of its query, no error, and one record an address."""
    query = _query("etcd.a.svc.cluster.local")
    reply = answer(query, _OBJECTS.get)
    number, flags, questions, answers, *_ = struct.unpack_from("!6H", reply)
    assert (number, flags & 0xF, questions, answers) == (77, 0, 1, 2)
    assert reply[12 : len(query)] == query[12:]
    assert [reply[-4:], reply[-20:-16]] == [*map(socket.inet_aton, ("10.78.1.3", "10.78.0.2"))]


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("web.a.svc.cluster.local", 28, 0),  # No address of version 6, and the name exists.
        ("none.a.svc.cluster.local", 1, 3),
        ("example.org", 1, 5),
    ],
)
def test_reply_without_an_address_says_why(name: str, kind: int, code: int) -> None:
    """A name that exists has no error; one of the cluster's is missing; others are refused."""
    _, flags, _, answers, *_ = struct.unpack_from("!6H", answer(_query(name, kind), _OBJECTS.get))
    assert (flags & 0xF, answers) == (code, 0)


@pytest.mark.parametrize("size", [0, 5, 12, 20])
def test_query_that_is_cut_short_is_no_query(size: int) -> None:
    """Nothing is answered to what cannot be read, and nothing else is raised."""
    with pytest.raises((ValueError, struct.error)):
        answer(_query("web.a.svc.cluster.local")[:size], _OBJECTS.get)
