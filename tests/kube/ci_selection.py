"""Which tests of this folder CI runs, and why: `make test-kube-ci`. All others: `make test-kube`.

CI has half an hour for this on two cores, of which the first build takes four minutes and the
scenarios of chaos in pods take twenty. Of what else only a real Kubernetes shows each kind is here
once, by its shortest test. What takes longest runs last: if CI has to end before, least is missing.
"""

from collections.abc import Mapping, Sequence

__all__ = ["BY_HAND", "IN_CI", "is_in_ci", "turn_of", "unknown_names"]

IN_CI: Mapping[str, str] = {
    # With an API server alone: fast, and many.
    "test_dns.py": "all: what a testbed that answers wrongly would hide from every other test",
    "test_kube_api.py": "all: the server validates, applies and scales as the other tests need it",
    "test_kube_contract.py": "all: what the double of the API server promises holds for a real one",
    "test_operator.py": "all: the operator with the rights of its manifest, killed and cut off",
    "test_chaos_job.py::test_roles_of_the_manifests_suffice": "the rights of the chaos Job",
    "test_chaos_job.py::test_a_pod_is_struck_as_it_was_seen_and_a_dry_run_leaves_it": (
        "pods are deleted and evicted by the API of an old server"
    ),
    # With nodes.
    "test_kernel.py": "all: a machine that cannot have a cluster is told what it lacks",
    "test_kube_cluster.py": "all: the cluster comes up, pods run and return, a node is cut off",
    "test_kube_down.py": "all: the cluster goes without a trace, also when it is half up",
    "test_elastic_job.py::test_the_example_trains_to_its_end": "a job trains on three nodes",
    "test_elastic_job.py::test_an_agents_pod_that_is_deleted_by_force_costs_no_step": "a lost pod",
    "test_elastic_job.py::test_scale_changes_the_size_of_a_job_that_trains": "another size",
    "test_chaos_pods.py": "each fault of pods, nodes and the control plane, and a short soak",
}
"""Names as pytest has them, without the folder: of a file, a test, or a test with its parameter."""

BY_HAND: Mapping[str, str] = {
    "test_chaos_pods.py::test_every_rule_holds_in_pods[kube-other-version]": (
        "it builds an image of an earlier version, from a history that a shallow clone has not"
    ),
    "test_chaos_pods.py::test_every_rule_holds_in_pods[kube-flapping]": (
        "most of its time Kubernetes lets a container wait that was killed before"
    ),
}
"""Tests that CI does not run although their file, or their function, is selected."""
_LAST = ("test_chaos_pods.py", "test_chaos_pods.py::test_every_rule_holds_in_pods[kube-soak]")


def is_in_ci(name: str) -> bool:
    """Whether CI runs a test, by its name from the file on."""
    if name in BY_HAND:
        return False
    file, _, test = name.partition("::")
    return not IN_CI.keys().isdisjoint({file, name, f"{file}::{test.partition('[')[0]}"})


def turn_of(name: str) -> int:
    """Return by what the tests are sorted: those that take longest come last."""
    return sum(name.startswith(last) for last in _LAST)


def unknown_names(names: Sequence[str]) -> list[str]:
    """Return which of the selected names no test has, of those whose file is there."""
    files = {name.partition("::")[0] for name in names}
    known = files | set(names) | {name.partition("[")[0] for name in names}
    return [
        one for one in (*IN_CI, *BY_HAND) if one.partition("::")[0] in files and one not in known
    ]
