"""The names of services: as much of a cluster's DNS as the project's manifests use.

Debian has no CoreDNS. This answers, over UDP, for NAME.NAMESPACE.svc.cluster.local with the
service's own address, or where it has none ("headless") with those of its endpoints; and for
HOST.NAME.NAMESPACE.svc.cluster.local with the endpoint of that host name, as a StatefulSet's pods
have. Each question is a question to the API server: a test's cluster asks little, and a name that
has just come or gone is never a matter of caches.
"""

import argparse
import json
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["DOMAIN", "addresses", "answer"]

DOMAIN = "cluster.local"

_HEADER = struct.Struct("!6H")
_QUESTION = struct.Struct("!2H")
_A, _INTERNET = 1, 1
_TTL_S = 1
_NAME_ERROR, _REFUSED = 3, 5
_POINTER_TO_QUESTION = 0xC00C
_MAX_ANSWERS = 28
"""As many as the 512 bytes of a reply over UDP hold."""

Get = Callable[[str], Mapping[str, Any] | None]
"""Return an object of the API by its path; None if there is none."""


def addresses(name: str, get: Get) -> Sequence[str] | None:
    """Return the addresses of a name of the cluster; None if it has no such name."""
    labels = name.lower().rstrip(".").removesuffix(f".svc.{DOMAIN}").split(".")
    if not name.lower().rstrip(".").endswith(f".svc.{DOMAIN}") or len(labels) not in (2, 3):
        return None
    host, (service, namespace) = (labels[0] if len(labels) == 3 else None), labels[-2:]
    found = get(f"/api/v1/namespaces/{namespace}/services/{service}")
    if found is None:
        return None
    own = found["spec"].get("clusterIP", "None")
    if host is None and own != "None":
        return [own]
    endpoints = get(f"/api/v1/namespaces/{namespace}/endpoints/{service}") or {}
    # A member of an etcd has to find the others before any of them is ready.
    kinds = ["addresses"]
    if found["spec"].get("publishNotReadyAddresses"):
        kinds.append("notReadyAddresses")
    there = [
        each
        for subset in endpoints.get("subsets") or ()
        for kind in kinds
        for each in subset.get(kind) or ()
    ]
    if host is None:
        return [each["ip"] for each in there]
    return [each["ip"] for each in there if each.get("hostname") == host] or None


def answer(query: bytes, get: Get) -> bytes:
    """Return the reply to one query.

    Raises:
        ValueError: it is no query with one question; nobody is owed a reply.
    """
    name, end = _read_name(query)
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    kind, family = _QUESTION.unpack_from(query, end)
    if flags & 0x8000 or questions != 1 or family != _INTERNET:
        raise ValueError(f"flags {flags:#x}, {questions} questions, class {family}")
    question = query[_HEADER.size : end + _QUESTION.size]
    found = addresses(name, get)
    code = 0
    if found is None:
        code = _NAME_ERROR if name.lower().endswith(DOMAIN) else _REFUSED
    there = list(found or ())[:_MAX_ANSWERS] if kind == _A else []
    # A response, authoritative, with recursion as it was desired.
    header = _HEADER.pack(number, 0x8400 | flags & 0x0100 | code, 1, len(there), 0, 0)
    records = [
        struct.pack("!3HIH", _POINTER_TO_QUESTION, _A, _INTERNET, _TTL_S, 4) + socket.inet_aton(ip)
        for ip in there
    ]
    return header + question + b"".join(records)


def _read_name(query: bytes) -> tuple[str, int]:
    """Return the name that is asked for, and where the question goes on after it."""
    labels, at = [], _HEADER.size
    while at < len(query) and (size := query[at]):
        if size > 63 or at + 1 + size > len(query):
            raise ValueError("a label is too long")
        labels.append(query[at + 1 : at + 1 + size].decode("ascii"))
        at += 1 + size
    if at + 1 + _QUESTION.size > len(query):
        raise ValueError("the query is too short")
    return ".".join(labels), at + 1


def _api(kubeconfig: Path) -> Get:
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    headers = {"Authorization": f"Bearer {user['token']}"}

    def get(path: str) -> Mapping[str, Any] | None:
        request = urllib.request.Request(cluster["server"] + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=2, context=trust) as reply:
                found: Mapping[str, Any] = json.load(reply)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    return get


def main() -> None:
    """Serve until somebody ends it: python -m tests.kube.testbed.control.dns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--address", required=True, help="where to listen, port 53")
    asked = parser.parse_args()
    get = _api(asked.kubeconfig)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((asked.address, 53))
        while True:
            query, sender = door.recvfrom(4096)
            try:
                door.sendto(answer(query, get), sender)
            except (OSError, ValueError, struct.error) as error:
                # Whoever asked asks again; an API server that is away has no names.
                print(f"no reply to {sender[0]}: {error}", flush=True)


if __name__ == "__main__":
    main()
