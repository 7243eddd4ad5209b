"""The page that explains an incident line by line has every field of it."""

from dataclasses import fields
from pathlib import Path

import pytest

from elasticd.records.account.incident import Incident
from elasticd.records.failure import Failure

PAGE = (Path(__file__).parents[3] / "docs" / "incidents.md").read_text()
TABLE = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize("name", [each.name for each in fields(Incident) if each.name != "unknown"])
def test_each_field_of_an_incident_is_explained(name: str) -> None:
    assert f"`{name}`" in TABLE


@pytest.mark.parametrize("name", [each.name for each in fields(Failure)])
def test_each_field_of_a_culprit_is_explained(name: str) -> None:
    assert f".{name}`" in TABLE
