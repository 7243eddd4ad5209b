"""Accepts keepers of other nodes, and receives their shares: the second holder of a sharded state.

Nothing listens before a worker of this node asks for the address, so a job whose replicas are equal
opens no port. A client costs a thread and some hundred bytes until it has proved that it knows the
token. The share that it then offers is checked before memory is taken, and its bytes count only
once their checksums are right.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from threading import BoundedSemaphore, Lock, Thread

from elasticd.checkpoint.format.checksum import block_sum, blocks, sum_of_sums
from elasticd.errors import ElasticdError, EnvironmentProblem, Refused, Unavailable
from elasticd.keeper.memory.received_shares import ReceiveSlot
from elasticd.keeper.memory.share_memory import ShareMemory
from elasticd.keeper.memory.share_record import ShareRecord
from elasticd.keeper.mirror.connection import MirrorConnection, server_handshake
from elasticd.keeper.mirror.protocol import (
    ANSWER_LIMIT_BYTES,
    ENDS,
    OFFER_LIMIT_BYTES,
    OFFERS,
    Held,
    NotNow,
    Offer,
    Wanted,
    checked,
)
from elasticd.keeper.wire.message import KeeperAddress, Saving
from elasticd.net.listener import family_of
from elasticd.telemetry.log import get_logger

__all__ = ["MirrorReceiver"]

TOKEN_BYTES = 32
GUESTS_LIMIT = 32
"""How many connections there may be: one of each node before us, in this generation and in those
that end."""
ACCEPT_PAUSE_S = 0.5
SAID_LIMIT = 100
WHY_LIMIT = 500

log = get_logger()


class MirrorReceiver:
    """Receive shares for one keeper. Several threads may use it."""

    def __init__(
        self,
        share_memory: ShareMemory,
        add: Callable[[ShareRecord], None],
        *,
        host: str,
        job: str,
        uid: str,
        niceness: int = 0,
    ) -> None:
        """`add` is called for each share that was received. `host` is the address at which other
        nodes reach this node.

        `niceness` is that of the threads that receive.
        """
        self._share_memory, self._add = share_memory, add
        self._host, self._job, self._uid = host, job, uid
        self._niceness = niceness
        self._lock = Lock()
        self._address: KeeperAddress | None = None
        self._guests = BoundedSemaphore(GUESTS_LIMIT)
        self._said: set[str] = set()

    def address(self) -> KeeperAddress | None:
        """Return the address for other keepers, and listen there; None if they cannot reach this
        node.
        """
        with self._lock:
            if self._address is None and self._host:
                try:
                    family = family_of(self._host)
                    listener = socket.create_server((self._host, 0), family=family)
                except OSError as exc:
                    self._log_once("listening", "keeper.not_listening", f"{self._host}: {exc}")
                    return None
                port = int(listener.getsockname()[1])
                self._address = KeeperAddress(
                    host=self._host, port=port, token=token_hex(TOKEN_BYTES)
                )
                Thread(
                    target=self._listen, args=(listener, self._address.token), daemon=True
                ).start()
            return self._address

    def _listen(self, listener: socket.socket, token: str) -> None:
        """Thread: start one more thread for each connection."""
        os.nice(self._niceness)  # On Linux that is this thread, and those that it starts.
        while True:
            self._guests.acquire()
            try:
                sock, (host, *_) = listener.accept()
            except OSError as exc:
                self._guests.release()
                log.warning("keeper.not_accepted", why=str(exc))
                time.sleep(ACCEPT_PAUSE_S)
                continue
            try:
                Thread(target=self._serve, args=(sock, host, token), daemon=True).start()
            except RuntimeError:  # No thread can be had.
                sock.close()
                self._guests.release()

    def _serve(self, sock: socket.socket, host: str, token: str) -> None:
        try:
            with sock, suppress(OSError, EOFError):
                try:
                    connection = server_handshake(sock, token)
                except Refused as exc:
                    self._log_once(host, "keeper.refused", f"{host}: {exc}")
                    return
                self._answer(connection, host)
        except Exception:
            log.exception("share.receiving_broke", host=host)
        finally:
            self._guests.release()

    def _answer(self, connection: MirrorConnection, host: str) -> None:
        """Receive the share that a client offers, or answer why not."""
        try:
            offer = connection.receive(OFFERS, OFFER_LIMIT_BYTES)
            checked(offer, self._job, self._uid)
            slot = self._share_memory.received.claim(
                offer.snapshot,
                offer.share,
                offer.shares,
                offer.layout.size,
                self._share_memory.owed_bytes,
            )
            if slot is not None:
                self._take(connection, offer, slot)
            elif offer.saving is not Saving.NONE:
                self._save(offer)
            connection.send(Held())
        except (Unavailable, EnvironmentProblem, Refused) as exc:
            why = str(exc)[:WHY_LIMIT]
            if isinstance(exc, EnvironmentProblem):
                self._log_once("room", "share.refused", why)
                why = "There is no memory for it."  # The same each time, so that it is told once.
            elif isinstance(exc, Refused):
                self._log_once(why, "share.refused", f"{host}: {why}")
            connection.send(NotNow(why=why))

    def _save(self, offer: Offer) -> None:
        """Begin to upload this share, which so far was only held in memory here."""
        for record in self._share_memory.received.records():
            share = record.share
            is_it = (share.snapshot, share.share) == (offer.snapshot, offer.share)
            if is_it and record.saving is Saving.NONE:
                record.saving = offer.saving
                with suppress(ElasticdError):
                    self._add(record)

    def _take(self, connection: MirrorConnection, offer: Offer, slot: ReceiveSlot) -> None:
        is_kept = False
        try:
            connection.send(Wanted())
            sums = []
            for start, size in offer.layout.parts:
                found: list[str] = []
                for block in blocks(slot.memory.view[start : start + size]):
                    connection.receive_block(block)
                    found.append(block_sum(block))
                sums.append(tuple(found))
            sealed = connection.receive(ENDS, ANSWER_LIMIT_BYTES)
            if sealed.sum != sum_of_sums(sums):
                raise Refused("The bytes that arrived are not those that were sent.")
            record = ShareRecord(
                share=offer.as_second(),
                memory=slot.memory,
                epoch=offer.epoch,
                saving=offer.saving,
            )
            record.seal_with(sums)
            self._share_memory.received.add(slot, record)
            is_kept = True
        finally:
            if not is_kept:
                self._share_memory.received.drop(slot)
        self._said.discard("room")
        if record.saving is not Saving.NONE:
            with suppress(ElasticdError):
                self._add(record)

    def _log_once(self, what: str, event: str, why: str) -> None:
        """Log an error only once: a client that returns again and again must not fill the disk."""
        if what not in self._said and len(self._said) < SAID_LIMIT:
            self._said.add(what)
            log.warning(event, why=why)
