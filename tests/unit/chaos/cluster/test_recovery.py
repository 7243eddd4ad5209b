"""When a fault counts as overcome: a status may be from before it, or of a part of the nodes."""

from dataclasses import replace

import pytest

from chaos.cluster.fault import Kind
from chaos.cluster.observation import AgentPod, JobView, Observation
from chaos.cluster.recovery import UNNOTICED_S, Fault, Log, begin, disturbed, follow, struck

JOB = JobView(
    name="x", is_allowed=True, job="default.x", phase="Running", nodes=3, wanted=3, generation=4,
    step=100, is_measured=True,
)  # fmt: skip


def seen(job: JobView = JOB, *, uid: str = "new", is_ready: bool = True) -> Observation:
    pods = [
        AgentPod(name=f"p-{node}", uid=f"{node}-old", node=node, is_ready=True, is_deleted=False)
        for node in ("b", "c")
    ]
    mine = AgentPod(name="p-a", uid=uid, node="a", is_ready=is_ready, is_deleted=False)
    return Observation(pods=(mine, *pods), jobs={"x": job})


def after(kind: Kind = Kind.POD_DELETE, uid: str = "old") -> Log:
    """Return the log of a fault at 1000 s, on node a."""
    fault = Fault(
        number=1, kind=kind, node="a", pod_uid=uid, victim="p-a", at_s=1000.0, before={"x": JOB}
    )
    return struck(begin(seen(uid="old"), 900.0), fault)


def looked(log: Log, *looks: Observation, at_s: float = 1001.0) -> Log:
    for number, look in enumerate(looks):
        log = follow(log, look, at_s + number)
    return log


def at(step: int, *, generation: int = 6, nodes: int = 3) -> JobView:
    return replace(JOB, step=step, generation=generation, nodes=nodes)


def test_a_status_from_before_the_fault_says_nothing() -> None:
    """The operator writes it every ten seconds, with all nodes and steps that go on."""
    log = looked(after(), seen(at(120, generation=4)), seen(at(140, generation=4)))
    assert log.open and log.tracks[0].went_on_s is None


def test_one_status_with_all_nodes_is_not_enough() -> None:
    """Its step may have been made before the fault."""
    log = looked(after(), seen(at(120)))
    assert log.open
    assert not looked(log, seen(at(121)), at_s=1011.0).open


def test_steps_with_a_part_of_the_nodes_go_on_and_are_no_recovery() -> None:
    log = looked(after(), seen(at(120, nodes=2)), seen(at(130, nodes=2)))
    assert log.open and log.tracks[0].went_on_s == 1002.0
    # From the size that it lost again meanwhile nothing is kept.
    log = looked(log, seen(at(140)), seen(at(150, nodes=2)), seen(at(160)), at_s=1010.0)
    assert log.open
    assert not looked(log, seen(at(170)), at_s=1020.0).open


def test_a_pod_that_is_not_another_one_is_no_successor() -> None:
    """One with a grace period trains on while it is asked to go."""
    log = looked(after(), seen(at(120), uid="old"), seen(at(130), uid="old"))
    assert log.open
    assert looked(log, seen(at(140), is_ready=False), at_s=1010.0).open
    assert not looked(log, seen(at(150)), at_s=1011.0).open


def test_the_pod_of_a_killed_worker_stays() -> None:
    log = after(Kind.WORKER_KILL)
    assert not looked(log, seen(at(120), uid="old"), seen(at(130), uid="old")).open


def test_a_stop_that_nobody_noticed_is_over_by_itself() -> None:
    """After two statuses of the same generation, and not of a kind that must change something."""
    same = [seen(at(step, generation=4), uid="old") for step in (120, 130)]
    late_s = 1000.0 + UNNOTICED_S + 1.0
    assert looked(after(Kind.WORKER_STOP), *same, at_s=1001.0).open
    assert not looked(after(Kind.WORKER_STOP), *same, at_s=late_s).open
    assert looked(after(Kind.WORKER_KILL), *same, at_s=late_s).open


def test_what_is_disturbed_is_ours_and_others() -> None:
    log = after()
    assert disturbed(log, seen()) == {"a"}
    away = AgentPod(name="p-d", uid="d", node="d", is_ready=True, is_deleted=True)
    look = replace(seen(), pods=(*seen().pods, away))
    assert disturbed(log, look) == {"a", "d"}
    # A pod that goes, and its successor that is ready already.
    again = replace(away, name="p-e", uid="e", is_deleted=False)
    assert disturbed(log, replace(look, pods=(*look.pods, again))) == {"a"}


@pytest.mark.parametrize(("is_measured", "falls"), [(True, 1), (False, 0)])
def test_an_old_record_of_a_step_is_no_loss(is_measured: bool, falls: int) -> None:
    """While no rank can be asked, the status has the step of etcd's record, which is older."""
    look = seen(replace(at(60), is_measured=is_measured))
    log = looked(begin(seen(), 900.0), seen(at(101)), look, look, seen(at(110)))
    assert len(log.falls) == falls


def test_a_job_whose_object_is_gone_is_over() -> None:
    log = looked(after(), replace(seen(), jobs={}))
    assert log.ends["x"].phase == "Deleted" and log.open
