"""Gives a running job a policy, or removes it. The autoscaler acts on the policy.

Each is one transaction that succeeds only while this very job is active. If the job has ended, or
another job has its name by then, nothing is written.
"""

from elasticd.control.report.report import JobReport
from elasticd.errors import NotFound, Unavailable
from elasticd.records.autoscale.policy import Policy
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import Active, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, KeyValue, ModifiedAt, Put, ReadableStore, Store, Txn

__all__ = ["AUTOSCALER", "check_has_policy", "set_policy", "unset_policy"]

ATTEMPTS = 5
"""The number of tries of a compare-and-set: the autoscaler writes the same keys a few times a
minute."""
AUTOSCALER = "autoscaler"


def set_policy(store: Store, keys: Keys, spec: JobSpec, policy: Policy) -> None:
    """Write the policy; it is used from the autoscaler's next evaluation on.

    `policy.uid` must be the uid of `spec`.

    Raises:
        NotFound: the job is over.
    """
    put = Put(key=keys.policy(spec.name), value=encode(policy))
    for _ in range(ATTEMPTS):
        active = _active(store, keys, spec)
        if store.commit(Txn(when=(_same(active),), then=(put,))).succeeded:
            return
    raise Unavailable(f"Job {spec.name!r} keeps changing while its policy is written: try again.")


def unset_policy(store: Store, keys: Keys, spec: JobSpec) -> None:
    """Delete the policy, the autoscaler's wish and its memory; the curve and the decisions stay.

    Raises:
        NotFound: the job is over, or has no policy.
    """
    policy_key, want_key = keys.policy(spec.name), keys.want(spec.name, AUTOSCALER)
    for _ in range(ATTEMPTS):
        active = _active(store, keys, spec)
        policy, want = store.get(policy_key), store.get(want_key)
        if policy is None and want is None:
            raise _no_policy(spec.name)
        # A leader that evaluates at this moment writes only while the policy stands unchanged.
        deletes = (
            Delete(key=policy_key),
            Delete(key=want_key),
            Delete(key=keys.autoscaler_memory(spec.name)),
        )
        when = (_same(active), _unchanged(policy_key, policy), _unchanged(want_key, want))
        if store.commit(Txn(when=when, then=deletes)).succeeded:
            return
    raise Unavailable(f"Job {spec.name!r} keeps changing while its policy is removed: try again.")


def check_has_policy(report: JobReport) -> None:
    """Check that the job has a policy that can be removed.

    Raises: NotFound: the job has neither a policy nor a wish of the autoscaler.
    """
    found = report.autoscaling
    # A policy of a newer version cannot be read here, but it can be removed.
    has_policy = found is not None and (found.policy is not None or bool(found.trouble))
    if not has_policy and AUTOSCALER not in report.wants:
        raise _no_policy(report.spec.name)


def _no_policy(job: JobName) -> NotFound:
    return NotFound(
        f"Job {job!r} has no policy: there is nothing to unset. `elasticd autoscale explain "
        f"{job}` tells what was decided before."
    )


def _active(store: ReadableStore, keys: Keys, spec: JobSpec) -> KeyValue:
    """Return the mark of the active job.

    Raises: NotFound: the job is over, or another one has its name.
    """
    item = store.get(keys.active_job(spec.name))
    if item is None or decode(Active, item.value).uid != spec.uid:
        raise NotFound(
            f"Job {spec.name!r} is over: `elasticd autoscale explain {spec.name}` tells what was "
            "decided."
        )
    return item


def _same(item: KeyValue) -> ModifiedAt:
    return ModifiedAt(key=item.key, revision=item.mod_revision)


def _unchanged(key: str, item: KeyValue | None) -> ModifiedAt:
    return ModifiedAt(key=key, revision=item.mod_revision if item is not None else 0)
