"""What the status of a waiting ElasticJob says of the nodes that it does not get."""

from dataclasses import replace

from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.member import Member, SlotOffer, StoreAddress
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from tests.fixtures.operator_scene import OperatorScene

HOST = {"host": "h", "address": "127.0.0.1", "port": 1}


def train(scene: OperatorScene, job: JobName, *names: str) -> None:
    """Have a job train on nodes, which serve it alone."""
    nodes = tuple(
        WorldNode(
            node=NodeId(name),
            incarnation=Incarnation("i.1"),
            first_rank=Rank(rank),
            workers=(WorldWorker(slot=Slot(0), nonce=Nonce(1)),),
            **HOST,  # type: ignore[arg-type]
        )
        for rank, name in enumerate(names)
    )
    world = World(
        generation=Generation(1),
        nodes=nodes,
        store=StoreAddress(host="h", port=1),
        reason=Reason.FIRST_WORLD,
    )
    scene.put(scene.keys.world(job), world)
    for name in names:
        offers = (SlotOffer(slot=Slot(0), nonce=Nonce(1)),)
        member = Member(
            node=NodeId(name),
            incarnation=Incarnation("i.1"),
            slots=offers,
            **HOST,  # type: ignore[arg-type]
        )
        scene.put(scene.keys.member(job, NodeId(name)), member)
    scene.run(job, len(names))


def test_a_job_that_waits_says_who_has_the_nodes(scene: OperatorScene) -> None:
    """As `elasticd status` does: `kubectl describe` is where its owner looks."""
    scene.create("x", nodes={"min": 1, "max": 2})
    operator = scene.begin()
    scene.converge(operator)
    for name in ("c", "b", "a"):  # In whatever order they come.
        scene.node(name, unschedulable=name == "c")
    (first,) = scene.jobs
    train(scene, first, "a", "b")
    scene.create("y")
    scene.converge(operator)
    assert scene.status("y")["message"] == (
        f"waiting for 1 more node: 0 of at least 1 ready; in use: a, b by {first}; draining: c"
    )


def test_a_job_for_which_there_are_too_few_nodes_says_so(scene: OperatorScene) -> None:
    """Waiting does not help it, and `elasticd agent` is no command for a cluster."""
    scene.node("a")
    scene.create(nodes={"min": 3, "max": 4})
    scene.converge(scene.begin())
    assert scene.status()["message"] == (
        "waiting for 3 more nodes: 0 of at least 3 ready; there is 1 such node in all"
    )


def test_what_it_says_goes_with_what_it_waits_for(scene: OperatorScene) -> None:
    scene.node("a")
    scene.create("x")
    operator = scene.begin()
    scene.converge(operator)
    (first,) = scene.jobs
    train(scene, first, "a")
    scene.create("y")
    scene.converge(operator)
    (second,) = set(scene.jobs) - {first}
    ended = replace(scene.job_status(first), phase=Phase.SUCCEEDED)
    scene.put(scene.keys.status(first), ended)
    scene.end(first)
    train(scene, second, "a")
    scene.now_s += 10.0
    scene.converge(operator)
    assert scene.status("y")["phase"] == "Running"
    assert "in use" not in scene.status("y").get("message", "")
