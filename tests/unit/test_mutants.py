"""The kept mutants fit the code as it is: one that no longer applies proves nothing."""

import subprocess

import pytest

from tests.mutants.run import ROOT, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_mutant_applies_and_names_a_test_that_exists(mutant: Mutant) -> None:
    """Whether it is killed takes minutes to find out: `python -m tests.mutants.run`."""
    told = subprocess.run(
        ["git", "apply", "--check", str(mutant.patch)], cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    path, _, name = mutant.test.partition("::")
    assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def test_each_mutant_has_a_number_of_its_own() -> None:
    """The docs name them by it."""
    numbers = [mutant.name.partition("-")[0] for mutant in mutants()]
    assert sorted(numbers) == sorted(set(numbers))
