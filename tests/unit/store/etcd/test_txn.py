"""What becomes of a transaction whose answer got lost, step by step.

The connection is a script: what it answers to each call, in order. Against a real etcd the same is
tested in tests/integration/test_etcd_faults.py, but for the orders that cannot be forced there.
"""

from typing import Any, cast

import pytest

from elasticd.errors import Unavailable
from elasticd.store.api import Delete, ModifiedAt, Put, StoreSettings, Txn, TxnResult
from elasticd.store.etcd.channel import Rpc, rpc_pb2
from elasticd.store.etcd.connection import Ambiguous, EtcdConnection
from elasticd.store.etcd.txn import commit

KEY = "/world"
TXN = Txn(
    when=(ModifiedAt(key=KEY, revision=7),),
    then=(Put(key=KEY, value=b"token"), Put(key="/mine", value=b"same")),
)
WITH_ELSE = Txn(when=TXN.when, then=TXN.then, otherwise=(Put(key="/mine", value=b"same"),))


class ScriptedConnection:
    """Answers what the script says; knows the writes from the questions by their ops."""

    def __init__(self, *script: Any) -> None:
        self.settings = StoreSettings(endpoints=["http://nowhere"], timeout_s=30.0)
        self.revision = 10
        self.said: list[str] = []
        self._script = list(script)

    def call(self, rpc: Rpc, request: Any, **_: Any) -> Any:
        assert rpc is Rpc.TXN
        ops = [*request.success, *request.failure]
        is_question = all(op.HasField("request_range") for op in ops)
        self.said.append("ask" if is_question else "write")
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def wrote(*, is_true: bool, revision: int) -> Any:
    return rpc_pb2.TxnResponse(header=rpc_pb2.ResponseHeader(revision=revision), succeeded=is_true)


def read(value: bytes, mod_revision: int, *, is_true: bool) -> Any:
    answer = wrote(is_true=is_true, revision=20)
    kv = answer.responses.add().response_range.kvs.add()
    kv.key, kv.value, kv.mod_revision = KEY.encode(), value, mod_revision
    return answer


def carry_out(txn: Txn, *script: Any) -> tuple[TxnResult, list[str]]:
    connection = ScriptedConnection(*script)
    return commit(cast(EtcdConnection, connection), txn), connection.said


def test_answer_that_came_is_taken_as_it_is() -> None:
    """No question is asked."""
    for is_true in (True, False):
        result, said = carry_out(TXN, wrote(is_true=is_true, revision=11))
        assert result == TxnResult(succeeded=is_true, revision=11)
        assert said == ["write"]


def test_own_value_that_stands_there_newly_means_success() -> None:
    """The revision is that of the write."""
    result, said = carry_out(TXN, Ambiguous(), read(b"token", 12, is_true=False))
    assert result == TxnResult(succeeded=True, revision=12)
    assert said == ["write", "ask"]


def test_own_value_of_an_earlier_write_means_nothing() -> None:
    """It stood there before we sent: the same value, but not from this transaction."""
    result, _ = carry_out(TXN, Ambiguous(), read(b"token", 9, is_true=False))
    assert not result.succeeded


def test_compare_that_still_holds_means_send_again() -> None:
    """Nothing happened, so the second one decides."""
    result, said = carry_out(
        TXN, Ambiguous(), read(b"old", 7, is_true=True), wrote(is_true=True, revision=13)
    )
    assert result == TxnResult(succeeded=True, revision=13)
    assert said == ["write", "ask", "write"]


def test_no_to_the_second_is_read_back_as_the_first_may_have_won() -> None:
    """The first was still under way while we asked: we lost against ourselves."""
    result, said = carry_out(
        TXN,
        Ambiguous(),
        read(b"old", 7, is_true=True),
        wrote(is_true=False, revision=13),
        read(b"token", 12, is_true=False),
    )
    assert result == TxnResult(succeeded=True, revision=12)
    assert said == ["write", "ask", "write", "ask"]


def test_no_to_the_second_is_final_if_the_value_is_not_ours() -> None:
    """Else the loop would not end."""
    result, said = carry_out(
        TXN,
        Ambiguous(),
        read(b"old", 7, is_true=True),
        wrote(is_true=False, revision=13),
        read(b"theirs", 13, is_true=False),
    )
    assert not result.succeeded
    assert said == ["write", "ask", "write", "ask"]


def test_broken_compare_means_failure_without_sending_again() -> None:
    """Somebody else was quicker, and there is no else-branch to make up for."""
    result, said = carry_out(TXN, Ambiguous(), read(b"theirs", 12, is_true=False))
    assert result == TxnResult(succeeded=False, revision=20)
    assert said == ["write", "ask"]


def test_else_branch_is_made_up_for() -> None:
    """It may not have been done, so it is sent again."""
    result, said = carry_out(
        WITH_ELSE,
        Ambiguous(),
        read(b"theirs", 12, is_true=False),
        wrote(is_true=False, revision=14),
        read(b"theirs", 12, is_true=False),
    )
    assert not result.succeeded
    assert said == ["write", "ask", "write", "ask"]


def test_deletion_alone_is_decided_by_its_compare() -> None:
    """There is no value to find; the question still reads a key, so that it is linearizable."""
    txn = Txn(when=TXN.when, then=(Delete(key=KEY),))
    seen = wrote(is_true=False, revision=20)
    seen.responses.add().response_range.SetInParent()
    result, said = carry_out(txn, Ambiguous(), seen)
    assert not result.succeeded
    assert said == ["write", "ask"]


def test_etcd_that_goes_away_for_good_is_unavailable() -> None:
    """We do not know, and say that and not "failed"."""
    with pytest.raises(Unavailable):
        carry_out(TXN, Ambiguous(), Unavailable("away"))
