"""The faults: each one thing that goes wrong at a time, and how it is made good."""

from collections.abc import Callable
from random import Random

from elasticd.records.reason import Reason
from tests.sim.node import START_DELAY_S, Node
from tests.sim.simulation import Simulation
from tests.sim.worker import Raised

__all__ = ["FAULTS", "Fault"]

Fault = Callable[[Simulation, Random], None]


def _some(sim: Simulation, rng: Random) -> Node:
    return sim.nodes[rng.choice(sorted(sim.nodes))]


def kill_worker(sim: Simulation, rng: Random) -> None:
    """P1, also two at once and one while a world forms, as the schedule draws several."""
    workers = sorted(
        (w for w in sim.training.alive() if w.is_alive), key=lambda w: (w.node, w.slot, w.nonce)
    )
    if workers:
        worker = rng.choice(workers)
        sim.say(f"FAULT    kill worker {worker.node}/{worker.slot}")
        sim.nodes[worker.node].kill_worker(worker)


def raise_in_worker(sim: Simulation, rng: Random) -> None:
    """P2: an exception of the user's."""
    workers = sorted(
        (w for w in sim.training.alive() if w.is_running), key=lambda w: (w.node, w.slot, w.nonce)
    )
    if workers:
        worker = rng.choice(workers)
        sim.say(f"FAULT    raise in worker {worker.node}/{worker.slot}")
        line = rng.randrange(1, 9999)
        while line in sim.raised_lines:  # The same line twice is one bug, and rightly ends the job.
            line += 1
        sim.raised_lines.add(line)
        sim.training.raises(worker, Raised(where=f"/x/train.py:{line}"))


def kill_agent(sim: Simulation, rng: Random) -> None:
    """P8: SIGKILL, sometimes of the whole machine; a new life some time later."""
    node, is_power_off = _some(sim, rng), rng.random() < 0.3
    sim.say(f"FAULT    kill agent {node.name} power_off={is_power_off}")
    node.kill_agent(is_power_off=is_power_off)
    sim.clock.after(rng.choice((0.1, 1.0, 4.0, 9.0)), node.start_agent)


def kill_for_good(sim: Simulation, rng: Random) -> None:
    """A machine that never comes back, as long as enough others are left."""
    lost = sum(node.is_lost for node in sim.nodes.values())
    if len(sim.nodes) - lost <= sim.spec.min_nodes:
        return
    node = _some(sim, rng)
    sim.say(f"FAULT    kill {node.name} for good")
    node.is_lost = True
    node.kill_agent(is_power_off=rng.random() < 0.5)


def flap(sim: Simulation, rng: Random) -> None:
    """P12: the same node dies again and again."""
    node = _some(sim, rng)
    sim.say(f"FAULT    flap {node.name}")
    for index in range(rng.randrange(2, 6)):
        sim.clock.after(index * rng.uniform(1.0, 3.0), node.kill_agent)
        sim.clock.after(index * 3.0 + rng.uniform(0.1, 0.9), node.start_agent)
    sim.clock.after(18.0, node.start_agent)


def goodbye(sim: Simulation, rng: Random) -> None:
    """K1: the agent is told to end, and comes back later."""
    node = _some(sim, rng)
    sim.drain(node.name, Reason.PREEMPTED)
    sim.clock.after(rng.uniform(1.0, 12.0), lambda: _come_back(node))


def drain(sim: Simulation, rng: Random) -> None:
    """An operator's wish; the daemon is started anew later, to undo it."""
    node = _some(sim, rng)
    sim.drain(node.name)

    def undo() -> None:
        node.kill_agent()
        node.start_agent()

    sim.clock.after(rng.uniform(2.0, 10.0), undo)


def _come_back(node: Node) -> None:
    if node.agent is not None and node.agent.is_ending:
        node.kill_agent()
    node.start_agent()


def stop_agent(sim: Simulation, rng: Random) -> None:
    """P9: SIGSTOP for less or more than the TTL, then SIGCONT."""
    agent = _some(sim, rng).agent
    if agent is None or agent.is_stopped:
        return
    for_s = rng.choice((0.5, 3.0, 6.0, 9.0, 20.0))
    sim.say(f"FAULT    SIGSTOP agent {agent.node.name} for {for_s}")
    agent.is_stopped = True
    sim.clock.after(for_s, lambda: agent.go_on() if agent.is_alive else None)


def cut_from_etcd(sim: Simulation, rng: Random) -> None:
    """N1, half of it: no way to etcd, peers are reached."""
    node, for_s = _some(sim, rng), rng.choice((0.5, 3.0, 7.0, 12.0, 25.0))
    sim.say(f"FAULT    cut {node.name} from etcd for {for_s}")
    node.link.is_cut_from_etcd = True

    def heal() -> None:
        node.link.is_cut_from_etcd = False

    sim.clock.after(for_s, heal)


def cut_from_peers(sim: Simulation, rng: Random) -> None:
    """N1, the other half: etcd is reached, nothing comes from the peers, not even a reset."""
    node, for_s = _some(sim, rng), rng.choice((0.5, 3.0, 7.0))
    sim.say(f"FAULT    cut {node.name} from peers for {for_s}")
    sim.silent.add(node.name)
    sim.clock.after(for_s, lambda: sim.silent.discard(node.name))


def stop_etcd(sim: Simulation, rng: Random) -> None:
    """E3: all of etcd is away for a while."""
    for_s = rng.choice((0.5, 2.0, 6.0, 12.0))
    sim.say(f"FAULT    etcd away for {for_s}")
    sim.etcd.is_down = True
    sim.clock.after(for_s, sim.etcd.come_back)


def scale(sim: Simulation, rng: Random) -> None:
    """A person wants another size for a while."""
    spec = sim.spec
    sim.want(rng.randint(spec.min_nodes, spec.max_nodes))
    if rng.random() < 0.5:
        sim.clock.after(rng.uniform(0.1, 5.0), sim.unwant)


def slow_start(sim: Simulation, rng: Random) -> None:
    """P11: a node whose workers take longer to start than a formation may."""
    node = _some(sim, rng)
    sim.say(f"FAULT    slow start on {node.name}")
    node.start_delay_s = (30.0, 40.0)

    def heal() -> None:
        node.start_delay_s = START_DELAY_S

    sim.clock.after(rng.uniform(2.0, 15.0), heal)


def poison_node(sim: Simulation, rng: Random) -> None:
    """A node on which every worker dies at once, for a while."""
    node = _some(sim, rng)
    sim.say(f"FAULT    poison {node.name}")
    node.is_poisoned = True

    def heal() -> None:
        node.is_poisoned = False

    sim.clock.after(rng.uniform(0.5, 4.0), heal)


def restart_pool(sim: Simulation, rng: Random) -> None:
    """The pool of a node is gone, with the workers in it, and comes back."""
    from elasticd.rendezvous import event as ev

    node = _some(sim, rng)
    agent = node.agent
    if agent is None or agent.state is None:
        return
    sim.say(f"FAULT    pool of {node.name} dies")
    agent.post(ev.PoolChanged(is_ready=False))
    for worker in list(node.workers.values()):
        node.kill_worker(worker)
    node.warm_up(agent)


FAULTS: dict[str, Fault] = {
    "kill_worker": kill_worker,
    "raise_in_worker": raise_in_worker,
    "kill_agent": kill_agent,
    "kill_for_good": kill_for_good,
    "flap": flap,
    "goodbye": goodbye,
    "drain": drain,
    "stop_agent": stop_agent,
    "cut_from_etcd": cut_from_etcd,
    "cut_from_peers": cut_from_peers,
    "stop_etcd": stop_etcd,
    "scale": scale,
    "slow_start": slow_start,
    "poison_node": poison_node,
    "restart_pool": restart_pool,
}
