"""An order is a fork only where a new process would have had the server's past."""

import pytest

from elasticd.channel.fork_server import ForkOrder
from elasticd_agent.pool.fork_server.fork_check import ServerFacts, refusal

INSTALLED = (("/lib/site-packages", 5),)
OWN = ServerFacts(
    surroundings={"net namespace": "net:[1]", "user": "0"},
    env={"HOME": "/root", "READ": "1", "LD_PRELOAD": "a.so"},
    reads=frozenset({"READ", "NOT_SET"}),
    installation=INSTALLED,
)


def order(
    env: dict[str, str] | None = None, surroundings: dict[str, str] | None = None
) -> ForkOrder:
    return ForkOrder(
        job="j",
        env={**OWN.env, **(env or {})},
        surroundings={**OWN.surroundings, **(surroundings or {})},
        folder="/",
    )


def test_same_environment_and_surroundings_may_be_a_fork() -> None:
    assert refusal(order(), OWN, INSTALLED) is None


@pytest.mark.parametrize(
    "env",
    [
        {"READ": "2"},
        {"NOT_SET": ""},
        {"LD_PRELOAD": "b.so"},
        {"TORCH_ANYTHING": "1"},
        {"OMP_PROC_BIND": "true"},
        {"PYTHONHASHSEED": "1"},
        {"LC_ALL": "C"},
    ],
)
def test_other_value_of_what_is_kept_is_named(env: dict[str, str]) -> None:
    refused = refusal(order(env), OWN, INSTALLED)
    assert refused is not None
    assert next(iter(env)) in refused.why
    assert not refused.is_stale


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": "/other"},
        {"OMP_NUM_THREADS": "4"},
        {"CUDA_VISIBLE_DEVICES": "1"},
        {"ROCR_VISIBLE_DEVICES": "1"},
        {"NCCL_DEBUG": "INFO"},
        {"OF_THE_SCRIPT": "x"},
    ],
)
def test_other_value_of_what_each_worker_reads_is_no_reason(env: dict[str, str]) -> None:
    assert refusal(order(env), OWN, INSTALLED) is None


def test_variable_that_the_job_lacks_counts_too() -> None:
    lacking = ForkOrder(job="j", env={"HOME": "/root"}, surroundings=OWN.surroundings, folder="/")
    refused = refusal(lacking, OWN, INSTALLED)
    assert refused is not None
    assert "LD_PRELOAD" in refused.why


@pytest.mark.parametrize("other", [{"net namespace": "net:[2]"}, {"cgroup": "/other"}])
def test_agent_elsewhere_is_refused(other: dict[str, str]) -> None:
    """Also where one of the two could not find out."""
    refused = refusal(order(surroundings=other), OWN, INSTALLED)
    assert refused is not None
    assert next(iter(other)) in refused.why


def test_installed_packages_make_the_server_stale() -> None:
    refused = refusal(order(), OWN, (("/lib/site-packages", 6),))
    assert refused is not None
    assert refused.is_stale
