"""The group that DistributedDataParallel's own code gets instead of a wakeable group.

torch's reducer begins an all-reduce for each bucket of gradients and waits for its future; before
each forward pass torch broadcasts the module's buffers, and waits for the broadcasts. Both are C++.
A work object of ours (`gloo_work.WakeableWork`) would cost each of these collectives a wait in
Python, which only the caller of `dist.all_reduce` needs: we can end a future wherever it is waited
for. So torch gets Gloo's own works here, and a step only makes one short call into Python for each
collective, which remembers it.

Rejected: to give torch its own group, and to go on in another thread while the training one sleeps
in a lost send. The script's lines after `elasticd.run` stand on the stack of the one that sleeps.
"""

import time
import weakref
from typing import Any

import torch
import torch.distributed as dist

from elasticd.train.introspection.collective_wait import step_wait
from elasticd.train.process_group.compiler_skip import hide_from_compilers
from elasticd.train.process_group.gloo_group import WakeableGroup

__all__ = ["install"]

_now_s = time.monotonic
_work_of: Any = torch._C._distributed_c10d._create_work_from_future  # type: ignore[attr-defined]

_reducers: "weakref.WeakKeyDictionary[Any, _ReducerGroup]" = weakref.WeakKeyDictionary()
"""The groups of reducers: C++ finds the methods below only as long as their object lives in
Python."""
_senders: "weakref.WeakKeyDictionary[WakeableGroup, _Sender]" = weakref.WeakKeyDictionary()


class _ReducerGroup(dist.ProcessGroup):
    """The group of one reducer, which takes the future of each all-reduce at once."""

    def __init__(self, group: WakeableGroup) -> None:
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg]
        group.register_backends(self)
        begin, pass_on = group.begin_allreduce, group.pass_on

        def allreduce(tensors: Any, options: Any) -> Any:
            if tensors[0].dtype is torch.int32:
                # Which parameters no rank used: the reducer waits for the work, not for a future.
                return group.allreduce(tensors, options)
            inner = begin(tensors, options)
            pass_on(inner)
            step_wait.taken_s = _now_s()
            return inner

        # As attributes of the object they are found at once, and are called without it.
        own: Any = self
        own.allreduce, own.broadcast = allreduce, group.broadcast


class _Sender(dist.ProcessGroup):
    """The group of torch's `_broadcast_coalesced`, which waits in C++ for one work or two."""

    def __init__(self, group: WakeableGroup) -> None:
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg]
        group.register_backends(self)
        self.sent: list[Any] = []
        self.began_s = 0.0
        self._begin, self._is_held = group.begin_broadcast, weakref.ref(group)

    def broadcast(self, tensors: Any, options: Any) -> Any:  # type: ignore[override]
        if not self.sent:
            step_wait.begin_collective()
            self.began_s = _now_s()
        inner = self._begin(tensors, options)
        group = self._is_held()
        assert group is not None
        group.pass_on(inner)
        self.sent.append(inner)
        return _work_of(inner.get_future())


def install() -> None:
    """Let torch's own code use these groups, in this process; `gloo_group.install` came before."""
    torch_distributed: Any = dist
    make_reducer, send = torch_distributed.Reducer, torch_distributed._broadcast_coalesced
    if getattr(send, "__module__", None) == __name__:
        return

    def reducer(*args: Any, **options: Any) -> Any:
        group = next((each for each in args if isinstance(each, WakeableGroup)), None)
        if group is None:
            return make_reducer(*args, **options)
        own = _ReducerGroup(group)
        made = make_reducer(*(own if each is group else each for each in args), **options)
        _reducers[made] = own
        return made

    def broadcast_coalesced(group: Any, *args: Any, **options: Any) -> None:
        if type(group) is not WakeableGroup or not group.had_no_timeout:
            send(group, *args, **options)
            return
        sender = _senders.get(group)
        if sender is None:
            sender = _senders[group] = _Sender(group)
        try:
            send(sender, *args, **options)
        finally:
            sent, sender.sent = sender.sent, []
        for each in sent:
            group.check(each)  # A work that is made from a future tells of no error.
        if sent:
            step_wait.waited(sender.began_s)

    torch_distributed.Reducer = reducer
    torch_distributed._broadcast_coalesced = broadcast_coalesced
    hide_from_compilers(broadcast_coalesced)
