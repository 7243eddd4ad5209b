"""An order is a fork only where a new process would have had the server's past."""

from typing import Any

import pytest

from elasticd.channel.fork_server import ForkOrder
from elasticd.records.ids import JobName
from elasticd.records.job import EntryKind, JobSpec
from elasticd_agent.pool.fork_server.fork_check import (
    SET_FOR_THE_IMPORTS,
    ServerFacts,
    can_be_forked,
    refusal,
)
from elasticd_agent.pool.warmup import ONE_THREAD

INSTALLED = frozenset({("/lib/site-packages/torch-2.dist-info", 5)})
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
    refused = refusal(order(), OWN, frozenset({("/lib/site-packages/torch-2.dist-info", 6)}))
    assert refused is not None
    assert refused.is_stale


def spec(env: dict[str, str] | None = None, **more: Any) -> JobSpec:
    given = {"name": JobName("j"), "uid": "u", "entry_kind": EntryKind.SCRIPT, "entry": "t.py"}
    return JobSpec(env=env or {}, **{**given, **more})


def test_job_that_a_server_can_serve_is_worth_one() -> None:
    assert can_be_forked(spec({"OF_THE_SCRIPT": "x", "NCCL_DEBUG": "INFO"}), {})
    assert can_be_forked(spec({"LD_PRELOAD": "a.so"}), {"LD_PRELOAD": "a.so"})


@pytest.mark.parametrize(
    "asked",
    [
        spec(python="/other/python"),
        spec(entry_kind=EntryKind.COMMAND),
        spec(preload=("slow",)),
        spec({"LD_PRELOAD": "b.so"}),
    ],
)
def test_job_that_no_server_can_serve_starts_none(asked: JobSpec) -> None:
    """A module that is named may hang, and only the agent's own child hears then that it died."""
    assert not can_be_forked(asked, {"LD_PRELOAD": "a.so"})


def test_variables_that_the_imports_set_are_those_of_the_warm_up() -> None:
    assert frozenset(ONE_THREAD) == SET_FOR_THE_IMPORTS
