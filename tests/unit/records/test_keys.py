"""How keys are spelled."""

from elasticd.records.ids import Generation, JobName, Life, NodeId
from elasticd.records.keys import Keys

KEYS = Keys("lab")
JOB, NODE = JobName("digits"), NodeId("gpu-1")


def test_every_key_is_spelled_as_the_architecture_says() -> None:
    """Whoever changes one changes what running agents look for."""
    root = "/elasticd/v1/lab/"
    assert KEYS.node(NODE) == root + "nodes/gpu-1"
    assert KEYS.drain(NODE) == root + "drains/gpu-1"
    assert KEYS.labels_of(NODE) == root + "node-labels/gpu-1"
    assert KEYS.active_job(JOB) == root + "active/digits"
    assert KEYS.spec(JOB) == root + "jobs/digits/spec"
    assert KEYS.want(JOB, "user") == root + "jobs/digits/wants/user"
    assert KEYS.member(JOB, NODE) == root + "jobs/digits/members/gpu-1"
    assert KEYS.world(JOB) == root + "jobs/digits/world"
    assert KEYS.status(JOB) == root + "jobs/digits/status"
    assert KEYS.progress(JOB) == root + "jobs/digits/progress"
    spent = root + "jobs/digits/time-spent/gpu-1/ab12"
    assert KEYS.time_spent(JOB, NODE, Life("ab12")) == spent
    assert KEYS.result(JOB, NODE) == root + "jobs/digits/results/gpu-1"


def test_prefixes_end_with_a_slash() -> None:
    """Else job "a" would see the members of job "ab"."""
    prefixes = (
        KEYS.nodes,
        KEYS.drains,
        KEYS.active,
        KEYS.jobs,
        KEYS.job(JOB),
        KEYS.wants(JOB),
        KEYS.members(JOB),
        KEYS.incidents(JOB),
        KEYS.results(JOB),
        KEYS.times_spent(JOB),
    )
    assert all(prefix.startswith(KEYS.root) and prefix.endswith("/") for prefix in prefixes)


def test_incidents_are_in_the_order_of_their_generations() -> None:
    """As etcd lists keys: by their bytes."""
    keys = [KEYS.incident(JOB, Generation(g), NODE) for g in (1, 2, 9, 10, 99, 100, 12345678)]
    assert keys == sorted(keys)
