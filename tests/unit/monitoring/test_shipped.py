"""What deploy/monitoring ships fits the list of metrics, and Prometheus' tools accept it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticd.telemetry.metrics import label
from elasticd.telemetry.metrics.catalog import CATALOG
from tests.fixtures.prometheus import FOLDER, dashboard_queries, promtool, with_tls
from tests.fixtures.promql import complaints

RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
GRAFANAS_OWN = {"__rate_interval", "__range"}
"""Variables that Grafana fills in by itself."""
RUNBOOK = (FOLDER.parents[1] / "docs" / "runbook.md").read_text()

LISTED = {metric.name: metric for metric in CATALOG}


def variables_of(part: object) -> set[str]:
    """The variables of Grafana in it."""
    return set(re.findall(r"\$\{?(\w+)", json.dumps(part)))


def tool(*args: str, cwd: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *args], cwd=cwd, text=True, capture_output=True, check=False)


@pytest.mark.parametrize(
    "args",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_prometheus_own_tool_accepts_it(args: tuple[str, ...]) -> None:
    """As they lie there, without an edit; each alert is played."""
    ended = tool(*args)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_variant_with_tls_is_valid_too(tmp_path: Path) -> None:
    """Comments rot: this one is taken out of its comment and checked."""
    for name in ("ca.pem", "prometheus.pem", "prometheus-key.pem"):
        (tmp_path / name).touch()
    text = with_tls((FOLDER / "prometheus.yml").read_text())
    text = text.replace("/etc/elasticd/", f"{tmp_path}/")
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
    scrape = yaml.safe_load(text)["scrape_configs"][0]
    assert scrape["tls_config"] == scrape["http_sd_configs"][0]["tls_config"]
    ended = tool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_variant_with_autoscalers_is_valid_too(tmp_path: Path) -> None:
    """Its job is the second one, at the port at which they listen by themselves."""
    text = (FOLDER / "prometheus.yml").read_text()
    before, mark, rest = text.partition("  # - job_name: elasticd-autoscaler\n")
    job, blank, after = (mark + rest).partition("\n\n")
    (tmp_path / "prometheus.yml").write_text(before + job.replace("  # ", "  ") + blank + after)
    (tmp_path / "alerts.yml").write_text((FOLDER / "alerts.yml").read_text())
    given = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    _, found = given["scrape_configs"]
    assert found["static_configs"] == [{"targets": ["node-a:9481"]}]
    ended = tool("check", "config", "prometheus.yml", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alert_asks_for_what_there_is_and_leads_to_its_page(alert: dict[str, Any]) -> None:
    """Names and labels are those of the list; the runbook has a section of that name."""
    assert list(complaints(alert["expr"])) == []
    name = alert["alert"]
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    section = RUNBOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for part in ("**Means.**", "**Look at.**", "**Do.**"):
        assert part in section, f"{name} has no {part}"
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["labels"]["severity"] in ("warning", "critical")


def test_runbook_has_no_section_without_its_alert() -> None:
    """One that was renamed would be found by nobody."""
    sections = re.findall(r"^## (.+)$", RUNBOOK, re.MULTILINE)
    assert sections == [alert["alert"] for alert in ALERTS]


def test_each_alert_is_seen_to_fire_and_not_to_fire() -> None:
    """In the rules' own tests."""
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    fired: dict[str, set[bool]] = {}
    for case in (each for test in tests for each in test["alert_rule_test"]):
        fired.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert fired == {alert["alert"]: {True, False} for alert in ALERTS}


@pytest.mark.parametrize("query", dashboard_queries("job"), ids=lambda query: query.title)
def test_panel_asks_for_what_there_is(query: Any) -> None:
    """Names and labels are those of the list."""
    assert list(complaints(query.expr)) == []


def test_every_variable_is_there_and_used() -> None:
    """The name of one that is not there would be sent to Prometheus as it stands."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert variables_of(panels) - GRAFANAS_OWN == VARIABLES.keys()
    assert variables_of(DASHBOARD["annotations"]) - GRAFANAS_OWN <= VARIABLES.keys()


@pytest.mark.parametrize("name", [n for n, v in VARIABLES.items() if v["type"] == "query"])
def test_variable_asks_for_what_there_is(name: str) -> None:
    """Its choices are the values of a label of the list, which the chosen panels filter by."""
    variable = VARIABLES[name]
    query = variable["query"]["query"]
    assert variable["definition"] == query
    assert variable["datasource"]["uid"] == "${datasource}"
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert asked is not None, query
    metric, of = asked.groups()
    assert list(complaints(f"max by ({of}) ({metric})")) == []
    assert of == name


def test_panels_show_the_jobs_that_were_chosen_and_no_others() -> None:
    """Each metric of a job is asked for by the variable, which may be several names or all."""
    chosen = 'job_name=~"$job_name"'
    for target in (each for panel in DASHBOARD["panels"] for each in panel.get("targets", ())):
        for metric, matchers in re.findall(r"\b(elasticd_\w+)(\{[^}]*\})?", target["expr"]):
            listed = LISTED.get(metric)
            if listed is not None and label.JOB in listed.labels:
                assert chosen in matchers, f"{target['expr']} asks for all jobs"
    (variable,) = (each for each in VARIABLES.values() if each["type"] == "query")
    assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".*"


def test_queries_of_all_panels_are_promql(tmp_path: Path) -> None:
    """As rules, since the tool checks those."""
    rules = [
        {"record": f"panel:{number}", "expr": query.expr}
        for number, query in enumerate(dashboard_queries("job"))
    ]
    text = yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    (tmp_path / "panels.yml").write_text(text)
    ended = tool("check", "rules", "panels.yml", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_queries_of_the_documentation_ask_for_what_there_is() -> None:
    """Somebody copies them."""
    page = (FOLDER.parents[1] / "docs" / "metrics.md").read_text()
    section = page.partition("\n## Questions that are asked often\n")[2].partition("\n## ")[0]
    queries = re.findall(r"\| `(.+)` \|$", section.replace("\\|", "|"), re.MULTILINE)
    assert len(queries) >= 5
    for query in queries:
        assert list(complaints(query)) == [], query


def test_dashboard_can_be_imported_anywhere() -> None:
    """No source of data by name; every panel has a title, a text, and a place of its own."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    places: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"] and panel["description"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24 and not cells & places, panel["title"]
        places |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("elasticd_slot", "elasticd_slot is no metric"),
        ('elasticd_slots{job_name="j"}', "elasticd_slots has no label job_name"),
        ('elasticd_job_phase{phase=~"running|wating"}', "wating is no value of phase"),
        ("sum by (rank) (elasticd_steps_total)", "rank is no label of what it asks for"),
        ("vector(0)", "it names no metric"),
    ],
)
def test_query_that_does_not_fit_is_found(query: str, why: str) -> None:
    """Else all of the above says nothing."""
    assert list(complaints(query)) == [why]
