"""Waits until a job is over, or until a node is free of work, from records alone.

If a cluster's etcd does not answer, the function waits for it: etcd comes back, and has the job's
end. The private etcd of a local run ends with the run, and then the end stands in its archive: the
caller gets None and opens the records anew.
"""

import time
from collections.abc import Callable

from elasticd.control.follow import EtcdAway, Follower, JobEnded, News
from elasticd.control.jobs import find_spec
from elasticd.control.report.occupancy import ended_jobs_on, read_uses
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.errors import NotSupported, Unavailable
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.store.api import ReadableStore, Store

__all__ = ["follow_to_end", "wait_node_free"]

TURN_S = 1.0
NODE_POLL_S = 0.5


def follow_to_end(
    store: Store,
    keys: Keys,
    job: JobName,
    *,
    is_private: bool,
    until_s: float,
    uid: str = "",
    has_ended: Callable[[], bool] = lambda: False,
    is_given_up: Callable[[], bool] = lambda: False,
    on_news: Callable[[News], None] = lambda news: None,
    now_s: Callable[[], float] = time.monotonic,
) -> JobStatus | None:
    """Return how the job ended; None at `until_s`, or if a private etcd (`is_private`) is gone.

    `has_ended` returns true if a local run is over: its etcd may end before the watch reports the
    job's end. If `is_given_up` returns true, nobody wants to know the end any more: the result is
    None. `on_news` is called with each piece of news on the way. `until_s` is a time of `now_s`, in
    seconds. `uid` is the job's; if it is empty, the job that has the name now is meant.

    Raises: NotFound: there is no such job, or its records were removed during the wait.
    """
    follower = Follower(store, keys, find_spec(store, keys, job, uid=uid), now_s=now_s)
    try:
        while (rest_s := until_s - now_s()) > 0.0 and not is_given_up():
            news = follower.next(min(TURN_S, rest_s))
            if news is not None:
                on_news(news)
            if isinstance(news, JobEnded):
                return news.status
            if is_private and (isinstance(news, EtcdAway) or has_ended()):
                return None
    finally:
        follower.close()
    return None


def wait_node_free(
    store: ReadableStore,
    keys: Keys,
    node: NodeId,
    *,
    until_s: float,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[JobName, ...]:
    """Wait until no job has work on the node; return the jobs that still have at `until_s`.

    A job that is over counts for as long as its workers end there: they may still save.

    Raises:
        Unavailable: etcd does not answer, at the first call or at the end.
        NotSupported: a job that may be on the node has a record of a newer schema.
    """
    is_known = False
    while True:
        is_over = now_s() >= until_s
        unreadable = UnreadableRecords()
        try:
            uses = read_uses(store, keys, unreadable)
            leaving = ended_jobs_on(store, keys, node)  # Later: a job may end between the two.
        except Unavailable:
            if not is_known or is_over:
                raise
        else:
            is_known = True
            found = (*(use.job for use in uses if use.node == node), *leaving)
            if not found and unreadable.clause:
                raise NotSupported(
                    f"Whether node {node!r} is free cannot be told: {unreadable.clause}."
                )
            if not found or is_over:
                return found
        pause(NODE_POLL_S)
