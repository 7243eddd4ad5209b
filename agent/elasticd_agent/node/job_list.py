"""Feeder: which jobs there are for this node, with their specs."""

from collections.abc import Callable, Mapping
from functools import partial

from elasticd.errors import ElasticdError, NotSupported, Unavailable
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import Active, JobSpec
from elasticd.records.keys import Keys
from elasticd.store.api import KeyRange, KeysChanged, KeyValue, Store, WatchSnapshot
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.effect_thread import EffectThread, later
from elasticd_agent.loop.inbox import Item
from elasticd_agent.loop.resync_watch import ResyncWatch, label_listing

__all__ = ["JobList"]

RETRY_S = 1.0

log = get_logger()


class JobList:
    """Watches the small `active/` keys; reads a spec once, when its job appears.

    `appeared`, `vanished` and `labelled`, with the labels that this node has from now on, are
    called on the owner's thread; `known` once, after the jobs of the first list; `refused` when the
    one job that this agent is for cannot be read, or asks for other nodes. A job that asks for
    labels which this node lacks is not reported: it competes for no slot here.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        effect_thread: EffectThread,
        post: Callable[[Item], None],
        *,
        only: JobName | None,
        node: NodeId,
        labels: Mapping[str, str],
        labelled: Callable[[Mapping[str, str]], None],
        appeared: Callable[[JobSpec, int], None],
        vanished: Callable[[JobName], None],
        known: Callable[[], None] = lambda: None,
        refused: Callable[[str], None],
    ) -> None:
        self._store, self._keys, self._effect_thread, self._post = store, keys, effect_thread, post
        self._only, self._appeared, self._vanished = only, appeared, vanished
        self._own_labels = self._labels = labels
        self._labelled, self._refused = labelled, refused
        self._tell_known, self._is_told = known, False
        self._left_out: dict[JobName, tuple[str, int]] = {}
        """Uid and order of jobs that ask for other labels, which this node may get."""
        self._known: dict[JobName, str] = {}
        """The uid of each, as a name may be used again."""
        self._unread: set[JobName] = set()
        """Jobs whose spec is being read, or is to be read again."""
        self.listings = (
            label_listing(store, keys.labels_of(node), self._take_labels),
            ResyncWatch(lambda: store.watch(KeyRange(key=keys.active, is_prefix=True), self._seen)),
        )

    def _take_labels(self, given: Mapping[str, str]) -> None:
        """Take new labels, on the store's thread; a job that is served here stays."""
        labels = {**given, **self._own_labels}
        if labels == self._labels:
            return
        self._labels = labels
        log.info("node.labelled", labels=labels)
        self._post(partial(self._labelled, labels))
        for job in list(self._left_out):
            self._ask_again(job)

    def _ask_again(self, job: JobName) -> None:
        """Read a job again that was left out; of several threads only one does so."""
        if left_out := self._left_out.pop(job, None):
            self._ask(job, *left_out)

    def _seen(self, seen: WatchSnapshot | KeysChanged) -> None:
        """Take a change of the list of jobs; the store's thread calls this."""
        if isinstance(seen, WatchSnapshot):
            present = {self._job(item.key): item for item in seen.items}
            for job in self._known.keys() - present.keys():
                self._remove(job)
            for item in present.values():
                self._take(item)
            self._after_list()
            return
        for change in seen.changes:
            if change.item is None:
                self._remove(self._job(change.key))
            else:
                self._take(change.item)

    def _take(self, item: KeyValue) -> None:
        job = self._job(item.key)
        if self._only not in (None, job):
            return
        try:
            active = decode(Active, item.value)
        except NotSupported as exc:
            if job not in self._known:
                self._refuse(job, exc)
            return
        known = self._known.get(job)
        if known == active.uid:
            return
        if known is not None:
            self._remove(job)  # Its end was missed, and the name has been used again.
        if active.is_ready:
            self._known[job] = active.uid
            self._ask(job, active.uid, item.create_revision)

    def _ask(self, job: JobName, uid: str, order: int) -> None:
        if self._known.get(job) == uid:
            self._unread.add(job)
            self._effect_thread.send(
                lambda: self._read(job),
                partial(self._read_done, job, uid, order),
                partial(self._read_failed, job, uid, order),
            )

    def _after_list(self) -> None:
        """Check, after the reads for the first list, whether all of its jobs were read."""
        if not self._is_told:
            self._effect_thread.send(lambda: None, self._recheck_unread, self._recheck_unread)

    def _recheck_unread(self, _: object) -> None:
        # A job that ended while its spec was asked for anew is in nobody's way.
        if self._unread & self._known.keys():
            later(RETRY_S, self._after_list)
        elif not self._is_told:
            self._is_told = True
            self._post(self._tell_known)

    def _remove(self, job: JobName) -> None:
        self._known.pop(job, None)
        self._left_out.pop(job, None)
        self._unread.discard(job)
        if self._only in (None, job):
            self._post(partial(self._vanished, job))

    def _read(self, job: JobName) -> JobSpec | None:
        item = self._store.get(self._keys.spec(job))
        return None if item is None else decode(JobSpec, item.value)

    def _read_done(self, job: JobName, uid: str, order: int, spec: JobSpec | None) -> None:
        if self._known.get(job) != uid:
            return
        self._unread.discard(job)
        if spec is None or spec.uid != uid:
            self._known.pop(job, None)  # It is over already; the watch tells of the next one.
        elif not spec.may_run_on(labels := self._labels):
            self._left_out[job] = uid, order
            if labels is not self._labels:  # They came at this moment, when it was not listed yet.
                self._ask_again(job)
            log.info("job.left_out", job=job, why=f"it asks for nodes labelled {spec.label_text}")
            if self._only == job:
                self._post(partial(self._refused, _unsuited(spec)))
        elif not spec.is_local or self._only == job:
            self._post(partial(self._appeared, spec, order))

    def _read_failed(self, job: JobName, uid: str, order: int, exc: ElasticdError) -> None:
        if isinstance(exc, Unavailable):
            later(RETRY_S, partial(self._ask, job, uid, order))
            return
        self._known.pop(job, None)
        self._unread.discard(job)
        self._refuse(job, exc)

    def _refuse(self, job: JobName, exc: ElasticdError) -> None:
        log.error("job.refused", job=job, why=str(exc))
        if self._only == job:
            self._post(partial(self._refused, str(exc)))

    def _job(self, key: str) -> JobName:
        return JobName(key.removeprefix(self._keys.active))


def _unsuited(spec: JobSpec) -> str:
    flags = " ".join(f"--label {key}={value}" for key, value in sorted(spec.node_labels.items()))
    return f"The job {spec.name!r} takes nodes labelled {spec.label_text}: give this agent {flags}."
