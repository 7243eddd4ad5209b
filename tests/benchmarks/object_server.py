"""A small S3 that is fast: a process of its own, a thread for each connection, bodies in memory.

Here so that a client's own cost is seen: moto takes longer for a request than the client. It knows
PUT (also `If-None-Match: *`), GET (also of a range), HEAD, DELETE and ListObjectsV2, believes every
signature, and writes bodies into memory that it has used before, where it has some.

`python -m tests.benchmarks.object_server` prints its port and serves until stdin ends.
"""

import hashlib
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.benchmarks.bench import ROOT

__all__ = ["BUCKET", "served"]

BUCKET = "bench"
HEAD_LIMIT_BYTES = 64 << 10
READ_BYTES = 4 << 20
SMALL_BYTES = 1 << 20
"""Smaller bodies are kept as they come; larger ones in memory that is used again."""
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(slots=True)
class _Store:
    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, memoryview] = field(default_factory=dict)
    spare: list[bytearray] = field(default_factory=list)
    """Memory of objects that were deleted."""

    def room(self, size: int) -> memoryview:
        """Memory for so many bytes, touched before if there is some."""
        if size < SMALL_BYTES:
            return memoryview(bytearray(size))
        with self.lock:
            fitting = [each for each in self.spare if len(each) >= size]
            if fitting:
                found = min(fitting, key=len)
                self.spare.remove(found)
                return memoryview(found)[:size]
        return memoryview(bytearray(size))

    def put(self, name: str, body: memoryview, *, is_exclusive: bool) -> bool:
        with self.lock:
            if is_exclusive and name in self.objects:
                return False
            self._free(self.objects.pop(name, None))
            self.objects[name] = body
            return True

    def delete(self, name: str) -> None:
        with self.lock:
            self._free(self.objects.pop(name, None))

    def _free(self, body: memoryview | None) -> None:
        if body is not None and isinstance(body.obj, bytearray) and len(body.obj) >= SMALL_BYTES:
            self.spare.append(body.obj)


class _Line:
    """One connection."""

    def __init__(self, sock: socket.socket, store: _Store) -> None:
        self._sock, self._store = sock, store
        self._ahead = b""

    def serve(self) -> None:
        with self._sock, suppress(OSError, EOFError):
            while True:
                self._answer()

    def _answer(self) -> None:
        verb, target, heads = self._head()
        parts = urlsplit(target)
        name = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        match verb:
            case "PUT":
                self._put(name, heads)
            case "GET" if not name:
                self._list(parse_qs(parts.query).get("prefix", [""])[0])
            case "GET" | "HEAD":
                self._get(name, heads, is_head=verb == "HEAD")
            case "DELETE":
                self._store.delete(name)
                self._sock.sendall(NO_CONTENT)
            case _:
                self._refuse(501, "NotImplemented")

    def _head(self) -> tuple[str, str, dict[str, str]]:
        data = self._ahead
        while b"\r\n\r\n" not in data:
            more = self._sock.recv(HEAD_LIMIT_BYTES)
            if not more:
                raise EOFError
            data += more
        head, _, self._ahead = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        verb, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        return verb, target, {key.lower(): value.strip() for key, _, value in pairs}

    def _put(self, name: str, heads: dict[str, str]) -> None:
        body = self._store.room(int(heads.get("content-length", "0")))
        if heads.get("expect") and not self._ahead:
            self._sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        at = min(len(body), len(self._ahead))
        body[:at], self._ahead = self._ahead[:at], self._ahead[at:]
        while at < len(body):
            count = self._sock.recv_into(body[at : at + READ_BYTES])
            if not count:
                raise EOFError
            at += count
        if self._store.put(name, body, is_exclusive=heads.get("if-none-match") == "*"):
            self._say("200 OK", b"", f'ETag: "{hashlib.md5(name.encode()).hexdigest()}"\r\n')
        else:
            self._refuse(412, "PreconditionFailed")

    def _get(self, name: str, heads: dict[str, str], *, is_head: bool) -> None:
        body = self._store.objects.get(name)
        if body is None:
            self._refuse(404, "NoSuchKey", is_head=is_head)
            return
        status, more = "200 OK", 'ETag: "0"\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n'
        found = _RANGE.fullmatch(heads.get("range", ""))
        if found:
            first, size = int(found[1]), len(body)
            last = min(int(found[2] or size), size - 1)
            if first >= size:
                self._refuse(416, "InvalidRange")
                return
            status, body = "206 Partial Content", body[first : last + 1]
            more += f"Content-Range: bytes {first}-{last}/{size}\r\n"
        self._say(status, body, more, is_head=is_head)

    def _list(self, prefix: str) -> None:
        with self._store.lock:
            found = [(n, len(b)) for n, b in self._store.objects.items() if n.startswith(prefix)]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size>"
            "<LastModified>2000-01-01T00:00:00Z</LastModified></Contents>"
            for name, size in sorted(found)
        )
        text = (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found)}</KeyCount><IsTruncated>false</IsTruncated>{rows}"
            "</ListBucketResult>"
        )
        self._say("200 OK", text.encode(), "Content-Type: application/xml\r\n")

    def _refuse(self, status: int, code: str, *, is_head: bool = False) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self._say(f"{status} {code}", text, "Content-Type: application/xml\r\n", is_head=is_head)

    def _say(
        self, status: str, body: bytes | memoryview, more: str = "", *, is_head: bool = False
    ) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        self._sock.sendall(head)
        if body and not is_head:
            self._sock.sendall(body)


def main() -> None:
    store = _Store()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            sock, _ = server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_Line(sock, store).serve, daemon=True).start()


@contextmanager
def served() -> Iterator[str]:
    """Run it; yields its endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.object_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
