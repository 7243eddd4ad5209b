"""The workers of one job that called `elasticd.run`: messages become events, decisions become
messages.

All methods run on the owner's thread. A worker is known here by its process number, which the pool
reports and the kernel confirms on the socket.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.channel import worker as ch
from elasticd.records.ids import Generation, NodeId, Nonce, Rank, Slot
from elasticd.records.member import Peer, Stall, Training, peer_of
from elasticd.records.world import Placement, World
from elasticd.rendezvous import event as ev
from elasticd.telemetry.log import get_logger
from elasticd_agent.loop.clock import now_s
from elasticd_agent.pool.process.niceness import undo
from elasticd_agent.worker_setup.worker_env import WorkerFiles

__all__ = ["AttachedWorkers", "WorkerProgress"]

log = get_logger()

NOT_FINITE_LIMIT = 20
"""How many names of numbers are kept: they go into the job's result, whose size etcd limits."""

Tell = Callable[[int, ch.ToWorker], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgress:
    """A worker's last report of its progress."""

    generation: Generation = Generation(0)
    step: int = 0
    is_told: bool = False
    """True if a script of restart mode reported it: by `elasticd.progress`, or
    `elasticd.checkpoint.save`."""
    has_stepped: bool = False
    is_paused: bool = False
    has_returned: bool = False
    epoch: int = 0
    epochs: int = 0
    steps: int = 0
    consumed: int = 0
    epoch_samples: int = 0
    step_s: float = 0.0
    committed_at_s: float | None = None
    """When this agent first saw its last step."""
    why_paused: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """The numbers of the last commit, where they are finite."""
    not_finite: Mapping[str, int] = field(default_factory=dict)
    """At which step a number was first seen not to be finite."""


@dataclass(slots=True, kw_only=True)
class _Known:
    slot: Slot
    nonce: Nonce
    is_attached: bool = False
    is_inside: bool = False
    """True if it was told to enter a world, and has left none since."""
    progress: WorkerProgress = WorkerProgress()
    formed: ch.Formed | None = None
    ranks: dict[int, Rank] = field(default_factory=dict)
    """Its ranks in the generation that it is in, and in those that it was told to enter since."""
    agents: dict[int, tuple[Peer, ...]] = field(default_factory=dict)
    """The agents of the other nodes of these generations."""


class AttachedWorkers:
    """Translate between messages and events; decide nothing. `feed` takes events into the core."""

    def __init__(self, tell: Tell, feed: Callable[[ev.Event], None]) -> None:
        self._tell, self._feed = tell, feed
        self._known: dict[int, _Known] = {}
        self.group_changed: Callable[[int], None] = lambda pid: None
        """Called when a worker enters a world, and when its group forms, breaks or is left."""
        self.left: Callable[[int, ch.Left], None] = lambda pid, message: None
        """Called with each goodbye before it is an event."""
        self.on_beat: Callable[[Slot, Nonce, ch.Beat], None] = lambda slot, nonce, beat: None
        """Called with each heartbeat before it is an event."""
        self.rank_heard: Callable[[Rank, ch.Beat, int], None] = lambda rank, beat, step: None
        """Called with each heartbeat in a world: its rank, and the steps when its group formed."""
        self.progressed: Callable[[Slot, Nonce, ch.Progressed], None] = lambda *_: None
        """Called with what a script of restart mode told; the core is not told of it."""

    def expect(self, pid: int, slot: Slot, nonce: Nonce) -> None:
        """Expect a process that this agent started and that may attach."""
        self._known[pid] = _Known(slot=slot, nonce=nonce)

    def forget(self, pid: int) -> None:
        self._known.pop(pid, None)

    def progress_of(self, pid: int) -> WorkerProgress | None:
        """Return the worker's progress; None before it has any: its steps then say nothing of the
        job.
        """
        known = self._known.get(pid)
        return known.progress if known is not None and known.formed is not None else None

    def shown_progress(self, pid: int) -> WorkerProgress | None:
        """Return the worker's progress, or what a script of restart mode reported.

        The progress is for people; no decision depends on it.
        """
        known = self._known.get(pid)
        if known is None or not (known.formed is not None or known.progress.is_told):
            return None
        return known.progress

    def steps_told(self, pid: int) -> int:
        """Return the steps that a script reported so far; 0 if none. Any thread may call this."""
        known = self._known.get(pid)
        return known.progress.step if known is not None else 0

    def has_state(self, pid: int) -> bool:
        """Return whether the worker was ever in a formed group, whose ranks have one state."""
        known = self._known.get(pid)
        return known is not None and known.formed is not None

    def is_attached(self, pid: int) -> bool:
        """Return whether the worker called `elasticd.run`: then its steps are known."""
        known = self._known.get(pid)
        return known is not None and known.is_attached

    def is_inside(self, pid: int) -> bool:
        """Return whether the worker is in a world, or on its way into one."""
        known = self._known.get(pid)
        return known is not None and known.is_attached and known.is_inside

    def agents_of(self, pid: int, generation: Generation) -> tuple[Peer, ...]:
        """Return the agents of the other nodes in a world that the worker was told to enter; none
        if the order is old.
        """
        known = self._known.get(pid)
        return known.agents.get(generation, ()) if known is not None else ()

    def has_news(self, pid: int, generation: Generation) -> bool:
        """Return whether the worker was told to enter a later world: a failure of this world is no
        event to the core then.
        """
        known = self._known.get(pid)
        return known is not None and any(told > generation for told in known.ranks)

    def report_partition(
        self, pid: int, generation: Generation, unreachable: tuple[NodeId, ...]
    ) -> None:
        """Report a broken group in a worker's place: its own connections do not show it."""
        why = "It makes no progress, and other nodes of its world do not answer."
        self.receive(pid, ch.Broken(generation=generation, why=why, unreachable=unreachable))

    # --- down ---------------------------------------------------------------------------------

    def enter(self, pid: int, world: World, placement: Placement, files: WorkerFiles) -> None:
        node = placement.node
        agents = tuple(peer_of(other) for other in world.nodes if other != node)
        if (known := self._known.get(pid)) is not None:
            known.is_inside = True
            known.ranks[world.generation] = placement.rank
            known.agents[world.generation] = agents
        self._tell(
            pid,
            ch.Enter(
                generation=world.generation,
                rank=placement.rank,
                size=world.size,
                local_rank=placement.local_rank,
                local_size=len(node.workers),
                node_rank=placement.group_rank,
                nodes=len(world.nodes),
                node=node.node,
                store=world.store,
                reason=world.reason.value,
                agents=agents,
                out_path=str(files.out),
                err_path=str(files.err),
                at_step=world.at_step,
            ),
        )

    def leave(self, pid: int, at_step: int | None, *, save_within_s: float | None = None) -> None:
        self._tell(pid, ch.Leave(at_step=at_step, save_within_s=save_within_s))

    # --- up -----------------------------------------------------------------------------------

    def receive(self, pid: int, message: ch.FromWorker) -> None:
        known = self._known.get(pid)
        if known is None:
            return
        slot, nonce = known.slot, known.nonce
        if isinstance(message, ch.Entered | ch.Formed | ch.Left | ch.Broken):
            self.group_changed(pid)
        match message:
            case ch.Attached():
                known.is_attached = True
                # What its script told before was of no commits.
                known.progress = replace(known.progress, is_told=False)
                undo(pid)
                self._feed(ev.WorkerAttached(slot=slot, nonce=nonce))
            case ch.Entered(generation=generation):
                ago_s = _ago_s(message)
                known.progress = replace(known.progress, generation=generation, has_stepped=False)
                entered = ev.WorkerEntered(
                    slot=slot, nonce=nonce, generation=generation, committed_ago_s=ago_s
                )
                self._feed(entered)
            case ch.Formed(generation=generation):
                known.formed = message
                known.ranks = {g: rank for g, rank in known.ranks.items() if g >= generation}
                known.agents = {g: each for g, each in known.agents.items() if g >= generation}
                known.progress = replace(known.progress, step=message.step)
                formed = ev.WorkerFormed(
                    slot=slot, nonce=nonce, generation=generation, backend=message.backend
                )
                self._feed(formed)
            case ch.Stepped():
                known.progress = replace(
                    known.progress, step=message.step, has_stepped=True, committed_at_s=now_s()
                )
                self._stepped(known, message)
            case ch.Left(step=step):
                not_finite = known.progress.not_finite
                known.progress = WorkerProgress(step=step, not_finite=not_finite)
                known.is_inside = False
                self.left(pid, message)
                self._feed(ev.WorkerLeft(slot=slot, nonce=nonce))
            case ch.Broken(generation=generation, why=why, unreachable=lost):
                log.warning(
                    "group.broken", generation=generation, slot=slot, why=why, unreachable=lost
                )
                self._feed(
                    ev.WorkerBroken(slot=slot, nonce=nonce, generation=generation, unreachable=lost)
                )
            case ch.Beat():
                self._beat(known, message)
            case ch.Finished():
                self._finished(known, message)
            case ch.Progressed():
                self._report_progress(known, message)
            case ch.Stacks():
                pass

    def _finished(self, known: _Known, message: ch.Finished) -> None:
        """Report what the worker trained in all, once all ranks have come to the end."""
        log.info(
            "training.finished",
            slot=known.slot,
            steps=message.step,
            epochs=message.epochs,
            samples=message.samples,
            repeated=message.repeated,
            skipped=message.skipped,
        )
        training = Training(
            steps=message.step,
            epochs=message.epochs,
            samples=message.samples,
            repeated=message.repeated,
            skipped=message.skipped,
            note=_note(known.progress),
        )
        self._feed(ev.WorkerFinished(slot=known.slot, nonce=known.nonce, training=training))

    def _stepped(self, known: _Known, message: ch.Stepped) -> None:
        formed = known.formed
        self._feed(
            ev.WorkerStepped(
                slot=known.slot,
                nonce=known.nonce,
                generation=message.generation,
                step=message.step,
                phases_s=message.phases_s,
                lost_steps=message.lost_steps,
                received_bytes=formed.received_bytes if formed is not None else 0,
                place=message.place,
                note=message.note,
            )
        )

    def _report_progress(self, known: _Known, message: ch.Progressed) -> None:
        if known.is_attached:
            return  # It came to `elasticd.run` since, whose heartbeats know better.
        known.progress = replace(
            known.progress,
            step=message.step,
            is_told=True,
            epoch=message.epoch,
            step_s=message.step_s,
            committed_at_s=now_s() - message.told_ago_s,
            scalars={
                name: value for name, value in message.scalars.items() if math.isfinite(value)
            },
            not_finite=_not_finite(known, message.scalars, message.step),
        )
        self.progressed(known.slot, known.nonce, message)

    def _beat(self, known: _Known, beat: ch.Beat) -> None:
        self.on_beat(known.slot, known.nonce, replace(beat, committed_ago_s=_ago_s(beat)))
        before, rank = known.progress, known.ranks.get(beat.generation)
        if beat.generation:
            known.progress = _further(known, beat)
            if rank is not None and known.formed is not None:
                self.rank_heard(rank, beat, known.formed.step)
        known.progress = replace(
            known.progress, is_paused=beat.is_paused, why_paused=beat.why_paused
        )
        if beat.has_returned and not before.has_returned:
            # Harmless, unless the others wait for it in a collective.
            stall = Stall(
                slot=known.slot,
                nonce=known.nonce,
                generation=Generation(beat.generation),
                step=beat.step,
                sequence=beat.sequence,
                has_returned=True,
            )
            self._feed(ev.WorkerStalled(stall=stall))
        known.progress = replace(known.progress, has_returned=beat.has_returned)
        # All ranks step together: the first one here speaks for the node, unless a pause begins.
        is_first = known is next((k for k in self._known.values() if k.is_attached), None)
        if not beat.generation or not (is_first or beat.is_paused != before.is_paused):
            return
        self._feed(
            ev.WorkerPaced(
                slot=known.slot,
                nonce=known.nonce,
                generation=Generation(beat.generation),
                step=beat.step,
                step_s=beat.step_s,
                is_paused=beat.is_paused,
            )
        )


def _ago_s(message: ch.Beat | ch.Entered) -> float:
    """Return how long ago the newest commit was by now, and not when the message was sent.

    An agent that was stopped reads all at once what its workers sent meanwhile.
    """
    if not message.sent_s or not message.committed_ago_s:
        return message.committed_ago_s
    return message.committed_ago_s + max(0.0, now_s() - message.sent_s)


def _further(known: _Known, beat: ch.Beat) -> WorkerProgress:
    """Return its progress as of this heartbeat, which was sent in `train`."""
    before = known.progress
    return replace(
        before,
        step=max(before.step, beat.step),
        epoch=beat.epoch,
        epochs=beat.epochs,
        steps=beat.steps,
        consumed=beat.consumed,
        epoch_samples=beat.epoch_samples,
        step_s=beat.step_s,
        committed_at_s=now_s() if beat.step > before.step else before.committed_at_s,
        scalars={name: value for name, value in beat.scalars.items() if math.isfinite(value)},
        not_finite=_not_finite(known, beat.scalars, beat.step),
    )


def _not_finite(known: _Known, scalars: Mapping[str, float], step: int) -> Mapping[str, int]:
    """Return at which step each number was first seen not to be finite, these new ones included."""
    found = dict(known.progress.not_finite)
    for name, value in scalars.items():
        if not math.isfinite(value) and name not in found and len(found) < NOT_FINITE_LIMIT:
            found[name] = step
            log.warning("scalar.not_finite", slot=known.slot, name=name, step=step)
    return found


def _note(progress: WorkerProgress) -> str:
    """Return a note of which numbers of a finished run were not finite."""
    return "; ".join(
        f"{name} was not finite, first seen at step {step}"
        for name, step in sorted(progress.not_finite.items())
    )
