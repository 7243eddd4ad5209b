"""Serves one rank's state to the ranks that lack it, while the training thread waits."""

import secrets
import socket
import threading
from contextlib import suppress
from typing import Self

from elasticd.net import framing
from elasticd.net.listener import family_of
from elasticd.tensors import cuda
from elasticd.tensors.tensor_bytes import TensorBytes
from elasticd.tensors.tree import Tree
from elasticd.train.sync import transfer_protocol
from elasticd.train.sync.transfer_protocol import (
    BYTES,
    DIGESTS,
    MANIFEST,
    PIECE_BYTES,
    REQUEST_LIMIT_BYTES,
    TransferManifest,
    TransferRequest,
    sum_of,
)

__all__ = ["StateServer"]

_HELLO_LIMIT_S = 5.0
SILENCE_LIMIT_S = 60.0
"""The longest silence between two requests: a target that computes sums is silent for a
while."""

_CONNECTION_LIMIT = 1024


class StateServer:
    """A listening socket on a port of the system's choice; use it in a `with`."""

    def __init__(self, tree: Tree, *, address: str, generation: int) -> None:
        self.token = secrets.token_hex(16)
        self.sent_bytes = 0
        # The threads that serve have streams of their own, which wait for nobody's.
        cuda.synchronize(tree.tensors)
        self._data = [TensorBytes(tensor) for tensor in tree.tensors]
        self._generation = generation
        self._manifest = TransferManifest(
            tree.skeleton,
            tuple((each.dtype, tuple(each.shape), each.device.type) for each in tree.tensors),
        ).to_json()
        self._digests: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()
        self._lines: set[socket.socket] = set()
        self._is_over = False
        self._listener = socket.create_server((address, 0), family=family_of(address))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, name="elasticd-heal", daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            lines = list(self._lines)
        for line in [self._listener, *lines]:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self._data.clear()

    def _accept(self) -> None:
        """Thread: start one more thread for each connection."""
        serving: list[threading.Thread] = []
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                break
            with self._lock:
                if self._is_over or len(self._lines) >= _CONNECTION_LIMIT:
                    line.close()
                    continue
                self._lines.add(line)
            thread = threading.Thread(target=self._serve, args=(line,), daemon=True)
            thread.start()
            serving.append(thread)
        for thread in serving:
            thread.join()

    def _serve(self, line: socket.socket) -> None:
        """Thread: answer one connection until it ends or sends something wrong."""
        # Whatever a visitor sends costs at most its own connection.
        with suppress(OSError, EOFError, ValueError), line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.settimeout(_HELLO_LIMIT_S)
            if transfer_protocol.verify_hello(line, self.token, self._generation) is not None:
                line.settimeout(SILENCE_LIMIT_S)
                while (request := transfer_protocol.read_request(line)) is not None:
                    self._answer(line, request)
        with self._lock:
            self._lines.discard(line)

    def _answer(self, line: socket.socket, request: TransferRequest) -> None:
        if request.kind == MANIFEST:
            framing.send_message(line, self._manifest)
            return
        if not 0 <= request.tensor < len(self._data) or request.length > REQUEST_LIMIT_BYTES:
            raise ValueError("a request out of range")
        data = self._data[request.tensor]
        stop = request.start + request.length
        if request.kind == DIGESTS and stop <= -(-len(data) // PIECE_BYTES):
            pieces = range(request.start, stop)
            line.sendall(b"".join(self._digest(request.tensor, data, piece) for piece in pieces))
        elif request.kind == BYTES and stop <= len(data):
            piece = data.read(request.start, request.length)
            line.sendall(piece)
            line.sendall(sum_of(piece))
            with self._lock:
                self.sent_bytes += request.length
        else:
            raise ValueError("a request out of range")

    def _digest(self, index: int, data: TensorBytes, piece: int) -> bytes:
        """Return a piece's digest from a cache, since many targets ask for the same digests."""
        key = (index, piece)
        if key not in self._digests:
            start = piece * PIECE_BYTES
            self._digests[key] = sum_of(data.read(start, min(PIECE_BYTES, len(data) - start)))
        return self._digests[key]
