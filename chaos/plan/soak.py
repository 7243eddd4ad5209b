"""The long run: a thousand faults of all kinds, drawn by quota, on three nodes.

A fault counts only after a commit at full size since the last one, or as a declared overlap; the
runner waits for that. So the pace is the system's own: a recovery of a second and a wait of a
quarter make a thousand faults in some forty minutes. Steps wait rather than compute, so that the
start of a replacement does not slow the survivors on two cores.
"""

from chaos.error import WrongInput
from chaos.plan.fault import Kind
from chaos.plan.scenario import JobPlan, Random, Scenario, SitePlan, Verdict

__all__ = ["SHARES", "soak"]

OVERLAP_SHARE = 0.1
CHECKPOINT_EVERY = "1s"
"""Far more often than anybody would, so that most faults fall into a save."""
SHARES: dict[Kind, float] = {
    # Back at full size after one or two seconds: these are the thousand.
    Kind.WORKER_KILL: 0.48,
    Kind.WORKER_CRASH: 0.10,
    Kind.WORKER_RAISE: 0.16,
    Kind.WORKER_TERM: 0.02,
    Kind.WORKER_EXIT: 0.02,
    Kind.WORKER_SLOW: 0.01,
    Kind.ETCD_KILL: 0.02,
    Kind.ETCD_STOP: 0.01,
    # Six to eight seconds: a new agent's pool imports torch first.
    Kind.AGENT_KILL: 0.04,
    Kind.NODE_KILL: 0.04,
    Kind.NODE_LEAVE: 0.02,
    Kind.NODE_DRAIN: 0.01,
    Kind.JOB_SCALE: 0.01,
    # Up to fifteen: something must run out before anybody may act, or they stand still that long.
    Kind.WORKER_STOP: 0.02,
    Kind.WORKER_GIL: 0.02,
    Kind.AGENT_STOP: 0.01,
    Kind.NODE_STOP: 0.01,
}
NETWORK_SHARES: dict[Kind, float] = {
    # Taken from the kills where namespaces can be had.
    Kind.NODE_CUT: 0.01,
    Kind.NODE_MUTE: 0.005,
    Kind.NODE_DEAF: 0.005,
    Kind.NODE_DELAY: 0.005,
}


def soak(
    faults: int, *, has_network: bool, nodes: int = 3, workers: int = 1, step_sleep_s: float = 0.04
) -> Scenario:
    """Make the scenario of a soak.

    Raises: WrongInput: one of the numbers is too small.
    """
    if faults < 1:
        raise WrongInput(f"--faults {faults} is not a number above 0.")
    if nodes < 2:
        raise WrongInput(f"--nodes {nodes}: with one node nobody survives the loss of a node.")
    if workers < 1:
        raise WrongInput(f"--workers {workers} is not a number above 0.")
    shares = dict(SHARES)
    if has_network:
        shares |= NETWORK_SHARES
        shares[Kind.WORKER_KILL] -= sum(NETWORK_SHARES.values())
    return Scenario(
        name="soak",
        about=f"{faults} faults of {len(shares)} kinds, one after the other; "
        f"{OVERLAP_SHARE:.0%} of them while the one before is not over.",
        site=SitePlan(nodes=nodes, workers=workers, has_network=has_network),
        job=JobPlan(
            step_sleep_s=step_sleep_s, max_restarts=faults, checkpoint_every=CHECKPOINT_EVERY
        ),
        random=Random(quota=quota(faults, shares), overlap_share=OVERLAP_SHARE),
        # An overlap may fall together with the fault before it into one change of world.
        verdict=Verdict(least_changes=faults // 2),
    )


def quota(faults: int, shares: dict[Kind, float]) -> dict[str, int]:
    """Split by share, to the exact sum: the largest remainders get what is left over."""
    exact = {kind: faults * share for kind, share in shares.items()}
    counts = {kind: int(value) for kind, value in exact.items()}
    rest = faults - sum(counts.values())
    for kind in sorted(exact, key=lambda kind: counts[kind] - exact[kind])[:rest]:
        counts[kind] += 1
    return {kind.value: count for kind, count in counts.items() if count}
