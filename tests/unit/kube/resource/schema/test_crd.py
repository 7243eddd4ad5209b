"""The CRD in the tree, and what makes it one that an API server takes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticd.kube.resource.__main__ import CRD_FILE, OLD_CRD_FILE, PAGE_FILE, crd_text
from elasticd.kube.resource.json_form import api_name
from elasticd.kube.resource.schema.crd import crd
from elasticd.kube.resource.schema.field import SPEC, all_fields
from elasticd.kube.resource.schema.markdown import page_with_fields
from elasticd.kube.resource.schema.rule import RULES, Fixed
from elasticd.kube.resource.schema.yaml_text import yaml_text
from elasticd.kube.resource.spec import ElasticJobSpec
from elasticd.kube.resource.status import ElasticJobStatus

ROOT = Path(__file__).parents[5]
SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize(("name", "has_cel"), [(CRD_FILE, True), (OLD_CRD_FILE, False)])
def test_the_files_are_what_the_tables_say(name: str, has_cel: bool) -> None:
    assert (ROOT / name).read_text() == crd_text(has_cel=has_cel), (
        "python -m elasticd.kube.resource"
    )


def test_the_page_has_all_fields() -> None:
    page = (ROOT / PAGE_FILE).read_text()
    assert page == page_with_fields(page), "run python -m elasticd.kube.resource"


def test_the_text_is_the_document() -> None:
    for has_cel in (True, False):
        assert yaml.safe_load(crd_text(has_cel=has_cel)) == crd(has_cel=has_cel)


@pytest.mark.parametrize(
    "value",
    [
        {"a": "on", "b": "1", "c": [], "d": {}, "e": None, "f": True, "g": 1.5, "h": "x: y\n#"},
        [[1, [2]], {"a": [{"b": "ü"}]}, "no", ""],
        "2026-11-23",
    ],
)
def test_every_value_comes_back_from_its_text(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


def test_the_table_has_the_fields_of_the_dataclasses() -> None:
    assert [each.name for each in SPEC.fields] == [
        api_name(name) for name in ElasticJobSpec.__dataclass_fields__ if name != "unknown"
    ]
    assert list(SCHEMA["properties"]["status"]["properties"]) == [
        api_name(name) for name in ElasticJobStatus.__dataclass_fields__ if name != "unknown"
    ]


def schemas(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield found
    for inner in (*found.get("properties", {}).values(), found.get("items")):
        yield from schemas(inner) if inner else ()
    yield from schemas(found["additionalProperties"]) if "additionalProperties" in found else ()


def test_the_schema_is_structural_and_bounded() -> None:
    """Without a bound on each text, list and map a server refuses rules in CEL as too costly."""
    for each in schemas(SCHEMA["properties"]["spec"]):
        assert each["type"], each
        assert "description" in each or each.get("format")
        assert not ("properties" in each and "additionalProperties" in each)
        if each["type"] == "string":
            assert "maxLength" in each or "enum" in each, each
        if each["type"] == "array":
            assert "maxItems" in each, each
        if "additionalProperties" in each:
            assert "maxProperties" in each, each


def test_scale_and_status_are_sub_resources_with_paths_that_are_there() -> None:
    version = crd()["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    for path in scale.values():
        _, top, name = path.split(".")
        assert name in SCHEMA["properties"][top]["properties"]
    for column in version["additionalPrinterColumns"]:
        top, *rest = column["jsonPath"].strip(".").split(".")
        found = SCHEMA["properties"][top]
        for name in rest if top != "metadata" else ():
            found = found["properties"][name]


def test_every_rule_is_a_sentence_and_stands_in_the_schema_of_servers_that_know_it() -> None:
    assert len({rule.cel for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.sentence.startswith("spec") and rule.sentence.endswith(".")
        assert len(rule.sentence) < 2048
    assert "x-kubernetes-validations" not in yaml_text(crd(has_cel=False))


def test_all_but_a_few_fields_are_fixed() -> None:
    fixed = {rule.path.split(".")[0] for rule in RULES if isinstance(rule, Fixed)}
    assert {each.name for each in SPEC.fields} - fixed == {
        *("replicas", "autoscale", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    }


def test_every_field_has_a_meaning_for_people() -> None:
    for path, field in all_fields():
        assert field.meaning.endswith("."), path
