"""What CI runs of the tests on a real Kubernetes is there, by the names that they have today."""

import ast
import re
from pathlib import Path

import pytest

from tests.kube.ci_selection import BY_HAND, IN_CI, is_in_ci, turn_of, unknown_names

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [*IN_CI, *BY_HAND])
def test_selected_name_is_that_of_a_test(name: str) -> None:
    file, _, test = name.partition("::")
    path = ROOT / "tests" / "kube" / file
    tree = ast.parse(path.read_text())
    tests = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    assert not test or test.partition("[")[0] in tests
    for scenario in re.findall(r"\[(.+)\]$", test):
        assert (ROOT / "chaos" / "scenarios" / f"{scenario}.toml").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_dns.py::test_anything[0]", True),
        ("test_chaos_job.py::test_roles_of_the_manifests_suffice", True),
        ("test_chaos_job.py::test_roles", False),
        ("test_elastic_job.py::test_the_output_of_rank_0_is_shown", False),
        ("test_chaos_pods.py::test_every_rule_holds_in_pods[kube-soak]", True),
        ("test_chaos_pods.py::test_every_rule_holds_in_pods[kube-other-version]", False),
        ("test_guide.py::test_the_ten_minutes_do_what_they_say", False),
    ],
)
def test_test_is_selected_by_its_file_its_name_or_its_parameter(name: str, expected: bool) -> None:
    assert is_in_ci(name) == expected


def test_what_takes_longest_comes_last() -> None:
    scenario = "test_chaos_pods.py::test_every_rule_holds_in_pods"
    names = [f"{scenario}[kube-soak]", f"{scenario}[kube-worker]", "test_operator.py::test_one"]
    assert sorted(names, key=turn_of) == names[::-1]


def test_selected_name_that_no_test_has_is_told() -> None:
    """Of files whose tests are known, and of no others."""
    one = "test_elastic_job.py::test_the_example_trains_to_its_end"
    assert one in unknown_names(["test_elastic_job.py::test_another"])
    assert one not in unknown_names([one])
    assert unknown_names(["test_guide.py::test_the_ten_minutes_do_what_they_say"]) == []
