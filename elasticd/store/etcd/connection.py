"""The way to etcd: calls that find a member that answers, within one deadline.

One channel per address; one of them is *current* and everybody uses it. A try that fails moves
the current one on, so the next try, and every other thread, asks another member. Each try gets a
part of the call's time, so that a member that is up but silent does not use up all of it. Every
call asks for `hasleader`: a member cut off from its quorum then says so at once.

Rejected: one gRPC channel over all addresses. It stays with a connected member that has no leader,
and cannot check TLS names of several hosts.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from elasticd.errors import ElasticdError, Unavailable
from elasticd.store.address import parse_addresses
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.channel import Channel, Metadata, Rpc, rpc_pb2, tls_file_stamps
from elasticd.store.etcd.diagnosis import diagnose
from elasticd.store.etcd.failure import EtcdFailure, Fate, understand
from elasticd.store.request_times import RequestTimes

__all__ = ["Ambiguous", "EtcdConnection"]

# After every address failed once: wait, doubling, with full jitter so that a thousand agents do
# not come back in step.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
# The part of a call's time that is kept back to find out what is wrong and to say it.
_DIAGNOSIS_PART = 0.15
_MOST_TOKENS_PER_CALL = 2


class Ambiguous(Exception):
    """A call that must not be repeated blindly may or may not have been carried out."""


class EtcdConnection:
    """All channels of one store, the token, and the highest revision seen."""

    def __init__(self, settings: StoreSettings) -> None:
        """Prepare; connects at the first call.

        Raises:
            CallError: an address or a TLS file is wrong.
        """
        self.settings = settings
        self._addresses = parse_addresses(settings.endpoints)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._channels: dict[int, Channel] = {}
        # Not always the first: else all agents would sit on one member.
        self._current = random.randrange(len(self._addresses))  # noqa: S311
        self._token_lock = threading.Lock()
        self._token = ""
        self._is_without_auth = not settings.user
        self._has_answered = False
        self.revision = 0
        """The highest that any answer carried; etcd was never behind it when we sent later."""
        self.history = 0
        """Counts how often etcd turned out to be another one: restored from a backup."""
        self.on_history_lost: Callable[[], None] = lambda: None
        """It is called whenever `history` has changed, on the thread that noticed it."""
        self._cluster_id = 0
        self.times = RequestTimes()
        self._channel()

    def call(
        self,
        rpc: Rpc,
        request: Any,
        *,
        timeout_s: float | None = None,
        is_repeatable: bool = True,
        is_diagnosed: bool = True,
    ) -> Any:
        """Do a call on whichever member carries it out.

        Raises:
            Ambiguous: the call is not repeatable and may have been carried out.
            Unavailable, Refused, Fenced: see `Store`.
        """
        began_s = time.monotonic()
        try:
            return self._call(rpc, request, timeout_s, is_repeatable, is_diagnosed)
        finally:
            self.times.observe(time.monotonic() - began_s)

    def _call(
        self,
        rpc: Rpc,
        request: Any,
        timeout_s: float | None,
        is_repeatable: bool,
        is_diagnosed: bool,
    ) -> Any:
        total_s = self.settings.timeout_s if timeout_s is None else timeout_s
        limit_s = time.monotonic() + total_s
        tries_end_s = limit_s - (total_s * _DIAGNOSIS_PART if is_diagnosed else 0.0)
        revision_before = self.revision
        failures = tokens = 0
        while True:
            channel = self._channel()
            try_s = min(total_s / max(2, len(self._addresses)), tries_end_s - time.monotonic())
            failure = self._try(channel, rpc, request, max(try_s, 0.01), revision_before)
            if not isinstance(failure, EtcdFailure):
                return failure
            if failure.fate is Fate.FINAL:
                raise failure.error
            if failure.fate is Fate.TOKEN_STALE and tokens < _MOST_TOKENS_PER_CALL:
                tokens += 1
                continue
            failures += 1
            self.leave(channel, is_silent=failure.is_silence)
            if failure.fate is Fate.UNKNOWN and not is_repeatable:
                raise Ambiguous from failure.error
            self._wait_for_next_round(failures, tries_end_s)
            is_round_over = failures == len(self._addresses)
            is_over = time.monotonic() >= tries_end_s or self.settings.has_ended()
            if is_over or (is_round_over and not self._has_answered and is_diagnosed):
                error = self._explain(failure, limit_s, is_diagnosed)
                # Wrong certificates and the like do not get better by trying again.
                if is_over or not isinstance(error, Unavailable):
                    raise error

    def open_watch(self, requests: Iterator[Any]) -> tuple[Channel, Any]:
        """Open a stream of watches on the current member.

        Raises: Unavailable: the connection was closed meanwhile.
        """
        channel = self._channel()
        try:
            return channel, channel.watch(requests, self._metadata(self._token))
        except ValueError as exc:
            raise Unavailable("The connection to etcd was closed meanwhile.") from exc

    def leave(self, channel: Channel, *, is_silent: bool) -> None:
        """Move on from a member that failed, unless somebody else already did.

        A silent connection is thrown away: it may be half open, and gRPC would need 15 s to see
        it. But not if another call was answered on it lately: then it is only slow.
        """
        with self._lock:
            index = self._addresses.index(channel.address)
            if self._current == index:
                self._current = (index + 1) % len(self._addresses)
            is_heard = time.monotonic() - channel.answered_s < 1.0
            is_stale = channel.tls_stamps != tls_file_stamps(self.settings)
            if not (is_stale or (is_silent and not is_heard)):
                return
            if self._channels.get(index) is channel:
                del self._channels[index]
        channel.close()

    def wait_closing(self, timeout_s: float) -> bool:
        """Sleep, but wake when the store is closed; return whether it is."""
        return self._closing.wait(timeout_s)

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()

    # --- one try ------------------------------------------------------------------------------

    def _try(
        self, channel: Channel, rpc: Rpc, request: Any, timeout_s: float, revision_before: int
    ) -> Any:
        """Return the answer, or the EtcdFailure."""
        token = ""
        try:
            token = self._token_for(channel, timeout_s)
            response = channel.call(
                rpc, request, timeout_s=timeout_s, metadata=self._metadata(token)
            )
        except grpc.RpcError as exc:
            failure = understand(exc, channel.address, user=self.settings.user)
            if failure.fate is Fate.TOKEN_STALE:
                self._forget_token(token)
            return failure
        except ValueError:  # Closed by another thread that left this member, or by `close`.
            return EtcdFailure(
                address=channel.address,
                fate=Fate.NOT_DONE,
                code=grpc.StatusCode.CANCELLED,
                details="",
                error=Unavailable("The connection to etcd was closed."),
            )
        self._has_answered = True
        self.note(rpc, response.header, revision_before)
        return response

    def note(self, rpc: Rpc, header: Any, revision_before: int) -> None:
        """Remember how far etcd is, and notice when it lost its past.

        A linearizable answer can never show less than what was known when it was asked for, unless
        etcd lost its past. The term of the answer says nothing: it is that of one member, which may
        have campaigned in vain, and two threads note their answers in either order. A backup that
        was restored and then outran the revision cannot be noticed from here; then the revisions of
        all that follows are newer, as in any history.
        """
        is_lost = False
        with self._lock:
            if rpc in (Rpc.RANGE, Rpc.TXN):
                is_other = self._cluster_id not in (0, header.cluster_id)
                is_lost = is_other or header.revision < revision_before
                if is_lost:
                    self.history += 1
                    self.revision = 0
                self._cluster_id = header.cluster_id
            self.revision = max(self.revision, header.revision)
        if is_lost:
            self.on_history_lost()

    def _channel(self) -> Channel:
        with self._lock:
            if self._closing.is_set():
                raise Unavailable("The connection to etcd was closed.")
            index = self._current
            if index not in self._channels:
                self._channels[index] = Channel(self._addresses[index], self.settings)
            return self._channels[index]

    def _wait_for_next_round(self, failures: int, end_s: float) -> None:
        rounds, rest = divmod(failures, len(self._addresses))
        if rest == 0:
            longest_s = min(_FIRST_PAUSE_S * 2 ** min(rounds, 10), _LONGEST_PAUSE_S)
            pause_s = random.uniform(0.2, 1.0) * longest_s  # noqa: S311
            self._closing.wait(max(0.0, min(pause_s, end_s - time.monotonic())))

    def _explain(self, failure: EtcdFailure, limit_s: float, is_diagnosed: bool) -> ElasticdError:
        if not is_diagnosed or self._closing.is_set():
            return failure.error
        return diagnose(self._addresses, self.settings, failure, limit_s=limit_s)

    # --- the token ----------------------------------------------------------------------------

    def _token_for(self, channel: Channel, timeout_s: float) -> str:
        if self._is_without_auth or self._token:
            return self._token
        with self._token_lock:  # One thread asks: a check of a password costs etcd 0.1 s.
            if not self._token and not self._is_without_auth:
                self._token = self._authenticate(channel, timeout_s)
            return self._token

    def _authenticate(self, channel: Channel, timeout_s: float) -> str:
        request = rpc_pb2.AuthenticateRequest(
            name=self.settings.user, password=self.settings.password
        )
        try:
            answer = channel.call(
                Rpc.AUTHENTICATE, request, timeout_s=timeout_s, metadata=self._metadata("")
            )
        except grpc.RpcError as exc:
            if "authentication is not enabled" in str(exc.details() or ""):
                return ""  # As etcd's own client does: go on without.
            raise
        return str(answer.token)

    def _forget_token(self, token: str) -> None:
        with self._token_lock:
            if self._token == token:
                self._token = ""

    def _metadata(self, token: str) -> Metadata:
        has_leader = (("hasleader", "true"),)
        return (*has_leader, ("token", token)) if token else has_leader
