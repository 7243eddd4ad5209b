"""Worker and agent go by one list of what another rank's end looks like."""

import pytest

from elasticd.records.failure import ERROR_WORDS, TEXT_WORDS
from elasticd.train.process_group.peer_failure import is_secondary
from elasticd_agent.workers import exit_report
from elasticd_agent.workers.exit_report import ExitReport

BOTH = (
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4",
    "Connection reset by peer",
    "Broken pipe",
    "connect() failed: Connection refused",
    "ncclRemoteError: A call failed possibly due to a network error",
    "ncclInternalError: Internal check failed.",
    "NCCL communicator was aborted on rank 1.",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
    "remote process exited or there was a network error",
    "Timed out waiting 1800000ms for recv operation to complete",
    "Socket Timeout",
    "recvValue failed on SocketImpl(fd=9)",
    "Store is no longer available",
    "The client socket has timed out after 60000ms",
)
OF_AN_ERROR_ALONE = ("wait timeout after 5000ms", "connection was likely closed", "send failed")
"""In a text of unknown type these may be of anything that the script asked for."""


@pytest.mark.parametrize("words", BOTH)
def test_worker_and_agent_take_the_same_words_for_an_echo(words: str) -> None:
    assert is_secondary(RuntimeError(words), is_peer_gone=False)
    assert exit_report.is_echo(ExitReport(exception=f"RuntimeError: {words}"))


@pytest.mark.parametrize("words", OF_AN_ERROR_ALONE)
def test_wider_words_count_only_where_the_type_is_known(words: str) -> None:
    assert is_secondary(RuntimeError(words), is_peer_gone=False)
    assert not is_secondary(ValueError(words), is_peer_gone=False)
    assert not exit_report.is_echo(ExitReport(exception=f"Anything: {words}"))


def test_what_a_text_is_known_by_an_error_is_known_by() -> None:
    """The second list is the first and some more."""
    assert ERROR_WORDS.pattern.startswith(TEXT_WORDS.pattern)


@pytest.mark.parametrize(
    "words", ["Command 'x' timed out after 5 seconds", "too hot", "e-mail send failed"]
)
def test_errors_of_the_script_are_its_own(words: str) -> None:
    assert not exit_report.is_echo(ExitReport(exception=f"TimeoutExpired: {words}"))
