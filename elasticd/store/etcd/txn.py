"""Carries out transactions, and finds out what happened to one whose answer got lost.

If a connection breaks after sending, we do not know the outcome. Reading back decides it:

* The first Put of `then` stands at its key with our value and a revision newer than anything we
  knew when we sent: ours was carried out. (Nobody else writes that value: the caller gave it a
  token. The other Puts may be what `otherwise`, or somebody else, would write too.) * Otherwise, if
  `when` still holds, nothing happened (yet): send it again. If the first one is still in flight and
  wins, then the second finds `when` broken, which is why a plain "no" after an ambiguous try is
  read back as well. * Otherwise somebody else was quicker: it failed. If there is an `otherwise`,
  it is sent again, because that was perhaps not done; it is then done at least once.

A transaction without `when` is sent again until it is answered: the last writer wins anyway. But
etcd may carry out a call whose answer got lost much later, and so undo what was written since;
where that matters, `when` says what stood there.

Not covered: ours was carried out *and* overwritten before we could look. It then counts as failed,
which every caller must expect of a compare-and-set in any case.
"""

import time
from typing import Any

from elasticd.errors import Unavailable
from elasticd.store.api import Delete, KeyRange, ModifiedAt, Op, Put, Txn, TxnResult, UnchangedSince
from elasticd.store.etcd.channel import Rpc, rpc_pb2
from elasticd.store.etcd.connection import Ambiguous, EtcdConnection
from elasticd.store.etcd.key_range import bounds, range_request

__all__ = ["commit"]


def commit(connection: EtcdConnection, txn: Txn) -> TxnResult:
    """Carry out a transaction, or find out whether it was carried out; see `Store.commit`."""
    limit_s = time.monotonic() + connection.settings.timeout_s
    known = max([connection.revision, *(compare.revision for compare in txn.when)])
    request = _request(txn)
    is_doubtful = False
    while True:
        answer = _send(connection, request, _left_s(limit_s), is_repeatable=not txn.when)
        if answer is not None and (answer.succeeded or not is_doubtful):
            return TxnResult(succeeded=answer.succeeded, revision=answer.header.revision)
        is_doubtful = True
        seen = connection.call(Rpc.TXN, _read_back(txn), timeout_s=_left_s(limit_s))
        ours = _own_revision(seen, txn, known)
        if ours:
            return TxnResult(succeeded=True, revision=ours)
        is_otherwise_done = answer is not None or not txn.otherwise
        if is_otherwise_done and not seen.succeeded:
            return TxnResult(succeeded=False, revision=seen.header.revision)


def _send(connection: EtcdConnection, request: Any, left_s: float, *, is_repeatable: bool) -> Any:
    """Return the answer, or None if it got lost."""
    try:
        return connection.call(Rpc.TXN, request, timeout_s=left_s, is_repeatable=is_repeatable)
    except Ambiguous:
        return None


def _left_s(limit_s: float) -> float:
    left_s = limit_s - time.monotonic()
    if left_s <= 0:
        raise Unavailable(
            "etcd did not say in time whether it carried out a transaction: read what it wrote."
        )
    return left_s


def _own_revision(seen: Any, txn: Txn, known: int) -> int:
    """Return the revision at which our first Put's value was written since, or 0."""
    put = _first_put(txn)
    for kv in seen.responses[0].response_range.kvs:
        if put is not None and kv.value == put.value and kv.mod_revision > known:
            return int(kv.mod_revision)
    return 0


def _first_put(txn: Txn) -> Put | None:
    return next((op for op in txn.then if isinstance(op, Put)), None)


def _request(txn: Txn) -> Any:
    return rpc_pb2.TxnRequest(
        compare=[_compare(compare) for compare in txn.when],
        success=[_op(op) for op in txn.then],
        failure=[_op(op) for op in txn.otherwise],
    )


def _read_back(txn: Txn) -> Any:
    put = _first_put(txn)
    if put is not None:
        read = range_request(KeyRange(key=put.key))
    else:
        # Never without a read: etcd answers an empty transaction from the member's own, perhaps
        # old, state, and would evaluate `when` on that.
        first = txn.when[0]
        if isinstance(first, ModifiedAt):
            read = range_request(KeyRange(key=first.key))
        else:
            read = range_request(KeyRange(key=first.prefix, is_prefix=True), limit=1)
    reads = [rpc_pb2.RequestOp(request_range=read)]
    return rpc_pb2.TxnRequest(
        compare=[_compare(compare) for compare in txn.when], success=reads, failure=reads
    )


def _compare(compare: ModifiedAt | UnchangedSince) -> Any:
    if isinstance(compare, ModifiedAt):
        return rpc_pb2.Compare(
            target=rpc_pb2.Compare.MOD,
            result=rpc_pb2.Compare.EQUAL,
            key=compare.key.encode(),
            mod_revision=compare.revision,
        )
    # One ranged compare: holds if it holds for every key there, and for no key at all.
    key, end = bounds(compare.prefix, is_prefix=True)
    return rpc_pb2.Compare(
        target=rpc_pb2.Compare.MOD,
        result=rpc_pb2.Compare.LESS,
        key=key,
        range_end=end,
        mod_revision=compare.revision + 1,
    )


def _op(op: Op) -> Any:
    match op:
        case Put():
            put = rpc_pb2.PutRequest(key=op.key.encode(), value=op.value, lease=op.lease or 0)
            return rpc_pb2.RequestOp(request_put=put)
        case Delete():
            key, end = bounds(op.key, is_prefix=op.is_prefix)
            end = op.until.encode() or end
            delete = rpc_pb2.DeleteRangeRequest(key=key, range_end=end)
            return rpc_pb2.RequestOp(request_delete_range=delete)
