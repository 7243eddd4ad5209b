"""Which tests of this folder CI runs, and why: `make test-kube-ci`. All others: `make test-kube`.

CI has a quarter of an hour for this on two cores, of which the first build takes five minutes. So
each kind of thing that only a real Kubernetes shows is here once, by its shortest test. Scenarios
of chaos in pods (test_chaos_pods.py) judge times, and are run by hand on a quiet machine.
"""

from collections.abc import Mapping, Sequence

__all__ = ["IN_CI", "is_in_ci", "unknown_names"]

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
}
"""Names as pytest has them, without the folder: of a file, a test, or a test with its parameter."""


def is_in_ci(name: str) -> bool:
    """Whether CI runs a test, by its name from the file on."""
    file, _, test = name.partition("::")
    return not IN_CI.keys().isdisjoint({file, name, f"{file}::{test.partition('[')[0]}"})


def unknown_names(names: Sequence[str]) -> list[str]:
    """Return which of the selected names no test has, of those whose file is there."""
    files = {name.partition("::")[0] for name in names}
    known = files | set(names) | {name.partition("[")[0] for name in names}
    return [one for one in IN_CI if one.partition("::")[0] in files and one not in known]
