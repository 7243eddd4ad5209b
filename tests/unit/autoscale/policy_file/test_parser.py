"""What a policy file may say, and what it is told where it may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.autoscale.policy_file.key import KEYS
from elasticd.autoscale.policy_file.parser import parsed
from elasticd.autoscale.policy_file.toml_text import policy_toml
from elasticd.errors import CallError, NotSupported
from elasticd.records.autoscale.policy import (
    DOWN,
    Behavior,
    BudgetRule,
    DeadlineRule,
    GoodputRule,
    IdleRule,
    MetricKind,
    Policy,
    Rate,
    RateUnit,
    Select,
    TargetMetric,
    TargetRule,
)

NOW_S = 1_795_000_000.0
WHOLE = """
schema = 1
min_nodes = 2
max_nodes = 16
window = "2m"
cooldown = 45
max_step = 4
allow_restarts = true
dry_run = true

[target]
tolerance = 0.2

[[target.metrics]]
name = "throughput"
query = 'sum(rate(samples_total{elasticd_job="$job"}[$window]))'
supply = 20000
max_age = "90s"

[[target.metrics]]
name = "queue"
query = "queue_length"
load = 100.5
per_node = true

[target.scale_up]
stabilization = "1m30s"
tolerance = 0.0
select = "Min"
policies = [{nodes = 4, period = "15s"}, {percent = 50, period = "1m"}]

[target.scale_down]
select = "disabled"
policies = []

[goodput]
horizon = "1h"
least_share = 0.25
probe = "500ms"

[deadline]
steps = 1_000_000
at = 2026-11-24T08:00:00Z

[budget]
cost = 100
price = "avg(node_price)"

[idle]
after = "10m"
data_share = 0.8
"""


def read(text: str) -> Policy:
    return parsed(text, file="policy.toml", now_unix_s=NOW_S)


def target(line: str, *, above: str = "") -> str:
    """Return a file whose one metric has this line instead of its target."""
    return f"{above}\n[[target.metrics]]\nname = 'queue'\nquery = 'x'\n{line}"


def test_a_file_with_all_rules_is_read() -> None:
    with_probe = WHOLE.replace('"500ms"', '"5000ms"')
    assert read(with_probe) == Policy(
        min_nodes=2,
        max_nodes=16,
        window_s=120.0,
        cooldown_s=45.0,
        max_step=4,
        allow_restarts=True,
        is_dry_run=True,
        target=TargetRule(
            tolerance=0.2,
            metrics=(
                TargetMetric(
                    name="throughput",
                    query='sum(rate(samples_total{elasticd_job="$job"}[$window]))',
                    target=20_000.0,
                    kind=MetricKind.SUPPLY,
                    max_age_s=90.0,
                ),
                TargetMetric(
                    name="queue",
                    query="queue_length",
                    target=100.5,
                    kind=MetricKind.LOAD,
                    is_per_node=True,
                ),
            ),
            up=Behavior(
                stabilization_s=90.0,
                tolerance=0.0,
                select=Select.MIN,
                rates=(
                    Rate(amount=4.0, unit=RateUnit.NODES, period_s=15.0),
                    Rate(amount=50.0, unit=RateUnit.PERCENT, period_s=60.0),
                ),
            ),
            down=Behavior(stabilization_s=300.0, select=Select.DISABLED, rates=()),
        ),
        goodput=GoodputRule(horizon_s=3600.0, least_share=0.25, probe_s=5.0),
        deadline=DeadlineRule(steps=1_000_000, at_unix_s=1_795_507_200.0),
        budget=BudgetRule(steps=1_000_000, cost=100.0, price_query="avg(node_price)"),
        idle=IdleRule(after_s=600.0, data_share=0.8),
    )


def test_what_is_left_out_is_as_the_records_have_it() -> None:
    assert read("[goodput]\n[idle]") == Policy(goodput=GoodputRule(), idle=IdleRule())
    policy = read(target("load = 5\n[target.scale_down]\nstabilization = 0"))
    assert policy.target is not None
    assert policy.target.down == Behavior(stabilization_s=0.0, rates=DOWN.rates)
    assert policy.target == TargetRule(metrics=policy.target.metrics, down=policy.target.down)


def test_a_deadline_may_be_so_long_from_now() -> None:
    rule = read('[deadline]\nsteps = 5\nwithin = "8h"').deadline
    assert rule == DeadlineRule(steps=5, at_unix_s=NOW_S + 8 * 3600)
    with_text = read('[deadline]\nsteps = 5\nat = "2026-11-24T10:00:00+02:00"').deadline
    assert with_text == DeadlineRule(steps=5, at_unix_s=1_795_507_200.0)


def test_a_price_that_is_a_number_makes_node_hours_of_the_cost() -> None:
    rule = read("[budget]\nsteps = 9\ncost = 100\nprice = 2.5").budget
    assert rule == BudgetRule(steps=9, node_hours=40.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('"90s"', 90.0),
        ('"5m"', 300.0),
        ('"1h30m"', 5400.0),
        ('"1.5h"', 5400.0),
        ('"2d"', 172_800.0),
        ('"1500ms"', 1.5),
        ('"90"', 90.0),
        ("90", 90.0),
        ("0.5", 0.5),
        ("0", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read(f"cooldown = {text}\n[goodput]").cooldown_s == seconds


WRONG = [
    # text, what the sentence must say
    ("", ["is empty: add at least one of [target], [goodput]"]),
    ("# nothing yet\n", ["is empty"]),
    ("min_nodes = 1", ["has no rule: add at least one of"]),
    ("[goodput]\nx\ny = 1", ["is not TOML: ", "line 2"]),
    ("a = 1\na = 2", ["is not TOML: "]),
    ("x = " + "9" * 5000, ["is not TOML: "]),
    ("x = " + "[" * 20_000, ["too deeply"]),
    ("mim_nodes = 1\n[goodput]", ['the key "mim_nodes" is not known; is min_nodes meant?']),
    ("minReplicas = 1\n[goodput]", ['"minReplicas" is not known; here it is min_nodes.']),
    ("zzzzzz = 1\n[goodput]", ["the keys are schema, min_nodes"]),
    ("[goodpt]", ['"goodpt" is not known; is goodput meant?']),
    ("horizon = '1h'\n[goodput]", ['"horizon" is not known; it belongs to [goodput].']),
    ("[goodput]\nhorizn = 1", ['[goodput]: the key "horizn" is not known; is horizon meant?']),
    (target("load = 1\n[target.scaleUp]"), ['"scaleUp" is not known; here it is scale_up.']),
    (
        target("load = 1\n[target.scale_up]\nstabilizationWindowSeconds = 3"),
        ["[target.scale_up]: ", "here it is stabilization."],
    ),
    (target("value = 1"), ['number 1: the key "value" is not known; here it is load or supply.']),
    ("min_nodes = 5\nmax_nodes = 3\n[goodput]", ["min_nodes = 5 is above max_nodes = 3."]),
    ("min_nodes = 0\n[goodput]", ["min_nodes = 0 is below 1"]),
    ("max_nodes = -3\n[goodput]", ["max_nodes = -3 is below 1"]),
    ("max_nodes = 2.5\n[goodput]", ["max_nodes = 2.5 is not a whole number."]),
    ("max_nodes = nan\n[goodput]", ["max_nodes = nan must be a number"]),
    ("max_nodes = 1e300\n[goodput]", ["max_nodes = 1e+300 is above"]),
    ("max_nodes = " + "9" * 400 + "\n[goodput]", ["digits is too large."]),
    ("max_nodes = '8'\n[goodput]", ['max_nodes = "8" is text and must be a number']),
    ("max_nodes = true\n[goodput]", ["max_nodes = true must be a number."]),
    ("max_nodes = [8]\n[goodput]", ["max_nodes = [8] must be a number."]),
    ("dry_run = 'yes'\n[goodput]", ['dry_run = "yes" must be true or false, without quotes.']),
    ("dry_run = 1\n[goodput]", ["dry_run = 1 must be true or false"]),
    ("cooldown = '5 min'\n[goodput]", ['cooldown = "5 min" is no duration: write "90s", "5m"']),
    ("cooldown = '5x'\n[goodput]", ['cooldown = "5x" is no duration']),
    ("cooldown = '-5s'\n[goodput]", ['cooldown = "-5s" is no duration']),
    ("cooldown = -5\n[goodput]", ["cooldown = -5 is below 0, which no duration is."]),
    ("cooldown = nan\n[goodput]", ["cooldown = nan must be a number"]),
    ("cooldown = inf\n[goodput]", ["cooldown = inf must be a number"]),
    ("cooldown = '10000d'\n[goodput]", ["is longer than 8784h, the most it may be."]),
    ("window = 0\n[goodput]", ["window = 0 is shorter than 1s"]),
    ("schema = 2\nfuture = 1", ["schema = 2, and this elasticd knows 1", "update elasticd"]),
    ("schema = 0\n[goodput]", ["schema = 0 is below 1"]),
    ("schema = 'x'\n[goodput]", ['schema = "x" is text']),
    ("goodput = 3", ["[goodput] is 3 and must be a table: write [goodput]."]),
    ("[[goodput]]", ["[goodput] is [{}] and must be a table: write [goodput]."]),
    ("[goodput]\nleast_share = 1.5", ["least_share = 1.5 must be from 0 to 1"]),
    ("[goodput]\nleast_share = nan", ["least_share = nan must be a number"]),
    ("[goodput]\nprobe = 0", ["probe = 0 is shorter than 1s"]),
    ("[target]", ["[target] has no metrics: add [[target.metrics]]"]),
    ("[target]\nmetrics = []", ["[target] has no metrics"]),
    ("[target]\nmetrics = 5", ["metrics = 5 must be tables"]),
    ("[target.metrics]\nname = 'x'", ["as one table: write [[target.metrics]]."]),
    ("[target]\nmetrics = [5]", ["[[target.metrics]] number 1 is 5 and must be a table"]),
    ("[[target.metrics]]\nquery = 'x'\nload = 1", ['number 1 has no name: add name = "queue".']),
    ("[[target.metrics]]\nname = 'q'\nload = 1", ['"q" has no query: add query = \'sum(']),
    (target(""), ['[[target.metrics]] "queue" has neither load nor supply: add one of them, ']),
    (target("load = 1\nsupply = 2"), ['"queue" has both load and supply: keep one of them']),
    (target("load = 0"), ["load = 0 must be above 0."]),
    (target("load = -0.5"), ["load = -0.5 must be above 0."]),
    (target("supply = nan"), ["supply = nan must be a number"]),
    (target("supply = inf"), ["supply = inf must be a number"]),
    (target("load = '100'"), ['load = "100" is text and must be a number']),
    (target("supply = 5\nper_node = true"), ["has a supply with per_node = true"]),
    (target("load = 1") + target("load = 1"), ['number 2: name = "queue" is the name of an']),
    (target("load = 1").replace("'queue'", "'price'"), ["is kept for the price of a budget"]),
    (target("load = 1").replace("'queue'", "' '"), ['name = " " is empty.']),
    (target("load = 1").replace("'queue'", "7"), ["name = 7 must be text in quotes"]),
    (target("load = 1").replace("'queue'", '"a\\nb"'), ["cannot be printed"]),
    (target("load = 1").replace("'queue'", f"'{'q' * 81}'"), ["has 81 characters, and may have"]),
    (target("load = 1").replace("'x'", "'x{a=\"b}'"), ["has a quote without its other half."]),
    (target("load = 1").replace("'x'", "'x{job=$job}'"), ["has $job outside of quotes"]),
    (target("load = 1").replace("'x'", "'x[$windw]'"), ["has $windw, and only $job and $window"]),
    (
        target("load = 1", above="[target]\ntolerance = -0.1"),
        ["tolerance = -0.1 must be 0 or more."],
    ),
    (target("load = 1\n[target.scale_up]\nselect = 'fast'"), ['must be one of "max", "min", ']),
    (target("load = 1\n[target.scale_up]\npolicies = 4"), ["policies = 4 must be a list as in"]),
    (
        target("load = 1\n[target.scale_up]\npolicies = [{nodes = 1}]"),
        ["the policy {nodes = 1} has no period: add period = "],
    ),
    (
        target("load = 1\n[target.scale_up]\npolicies = [{period = 5}]"),
        ["the policy {period = 5} has neither nodes nor percent"],
    ),
    (
        target("load = 1\n[target.scale_up]\npolicies = [{nodes = 0, period = 5}]"),
        ["nodes = 0 is below 1"],
    ),
    (
        target("load = 1\n[target.scale_up]\npolicies = [{percent = 0, period = 5}]"),
        ["percent = 0 must be above 0."],
    ),
    (
        target("load = 1\n[target.scale_up]\npolicies = [{pods = 1, period = 5}]"),
        ['the key "pods" is not known; here it is nodes.'],
    ),
    ("[deadline]\nsteps = 5", ["[deadline] has neither at nor within"]),
    ("[deadline]\nwithin = '1h'", ["[deadline] has no steps: add steps = 100000."]),
    ("[deadline]\nsteps = 0\nwithin = '1h'", ["steps = 0 is below 1"]),
    (
        "[deadline]\nsteps = 5\nwithin = '1h'\nat = 2026-11-24T08:00:00Z",
        ["[deadline] has both at and within"],
    ),
    (
        "[deadline]\nsteps = 5\nat = 2026-11-24T08:00:00",
        ["at = 2026-11-24T08:00:00 does not say of which zone"],
    ),
    ("[deadline]\nsteps = 5\nat = 2026-11-24", ["at = 2026-11-24 is no time"]),
    ("[deadline]\nsteps = 5\nat = 'tomorrow'", ['at = "tomorrow" is no time']),
    ("[deadline]\nsteps = 5\nat = 08:00:00", ["at = 08:00:00 is no time"]),
    ("[budget]\nsteps = 5", ["[budget] has neither node_hours nor cost"]),
    ("[budget]\nsteps = 5\ncost = 4", ["[budget] has no price: add price = 2.5."]),
    ("[budget]\nsteps = 5\nnode_hours = 4\ncost = 4", ["has both node_hours and cost"]),
    ("[budget]\nsteps = 5\nnode_hours = 4\nprice = 4", ["has node_hours and a price"]),
    ("[budget]\nsteps = 5\nnode_hours = 0", ["node_hours = 0 must be above 0."]),
    ("[budget]\nsteps = 5\ncost = 4\nprice = 0", ["price = 0 must be above 0."]),
    ("[budget]\nsteps = 5\ncost = 1e300\nprice = 1e-300", ["makes no sense beside this cost"]),
    ("[budget]\nnode_hours = 5", ["[budget] has no steps"]),
    (
        "[deadline]\nsteps = 5\nwithin = '1h'\n[budget]\nsteps = 6\nnode_hours = 4",
        ["[deadline] has steps = 5 and [budget] has steps = 6, and both are the steps"],
    ),
    ("[goodput]\nhorizon = '" + 2 * ("9" * 308 + "s") + "'", ["is longer than 8784h"]),
    ("[idle]\nafter = '1 hour'", ['after = "1 hour" is no duration']),
    ("[idle]\ndata_share = 0", ["data_share = 0 must be from above 0 to 1"]),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence(text: str, says: list[str]) -> None:
    with pytest.raises(CallError) as caught:
        read(text)
    said = str(caught.value)
    assert said.startswith("policy.toml")
    assert said.endswith((".", "?"))
    assert "\n" not in said and len(said) < 400
    for part in says:
        assert part in said


def test_a_policy_of_a_newer_schema_is_not_taken_for_a_wrong_one() -> None:
    with pytest.raises(NotSupported):
        read("schema = 99\n[goodput]\nnot_yet_known = 1")


def test_references_of_label_replace_are_no_variables() -> None:
    query = 'label_replace(x, "a", "$1-${rest}", "b", "(.)(?P<rest>.*)")'
    policy = read(target("load = 1").replace("'x'", f"'{query}'"))
    assert policy.target is not None
    assert policy.target.metrics[0].query == query


def test_every_key_is_read() -> None:
    """A key that stands in the table and nowhere else would be accepted and do nothing."""
    for section, keys in KEYS.items():
        for key in keys:
            if key in ("within", "node_hours", "load", "supply", "nodes", "percent"):
                continue
            assert f"{key} = " in WHOLE or f"[{key}]" in WHOLE or f".{key}]" in WHOLE, section


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (section, key)
        for section, keys in KEYS.items()
        for key, each in keys.items()
        if each.default and (" " not in each.default or each.default.startswith("["))
    ],
)
def test_the_default_in_the_table_is_the_one_that_holds(section: str, key: str) -> None:
    line = f"{key} = {KEYS[section][key].default}"
    bare = {
        "": "{}\n[goodput]",
        "[target]": "[target]\n{}" + target("load = 1"),
        "[[target.metrics]]": target("load = 1\n{}"),
        "[target.scale_up]": target("load = 1\n[target.scale_up]\n{}"),
        "[target.scale_down]": target("load = 1\n[target.scale_down]\n{}"),
        "[goodput]": "[goodput]\n{}",
        "[idle]": "[idle]\n{}",
    }[section]
    assert read(bare.replace("{}", line)) == read(bare.replace("{}", ""))


ODD = [
    "0",
    "-1",
    "1",
    "0.5",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "5e-324",
    str(10**400),
    "-" + str(10**400),
    "true",
    "''",
    "'x'",
    "'5m'",
    "'9" + "9" * 400 + "d'",
    '"\\u0000"',
    "'" + "x" * 5000 + "'",
    "'$job'",
    "'{'",
    "[]",
    "[[]]",
    "[{}]",
    "[1, 'x', {}]",
    "{}",
    "{a = 1}",
    "{name = 'a', query = 'x', load = 1}",
    "[{name = 'a', query = 'x', load = 1}]",
    "[{nodes = 1, period = 5}]",
    "2026-11-24",
    "2026-11-24T08:00:00",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z",
    "08:00:00",
]
PLACES = {
    "": "{}\n[goodput]",
    "[target]": "[target]\n{}",
    "[[target.metrics]]": "[[target.metrics]]\nname = 'a'\nquery = 'x'\n{}",
    "[target.scale_up]": target("load = 1\n[target.scale_up]\n{}"),
    "[target.scale_down]": target("load = 1\n[target.scale_down]\n{}"),
    "policies = [{...}]": target("load = 1\n[target.scale_up]\npolicies = [{period = 5, {}}]"),
    "[goodput]": "[goodput]\n{}",
    "[deadline]": "[deadline]\nsteps = 5\n{}",
    "[budget]": "[budget]\nsteps = 5\nprice = 2\n{}",
    "[idle]": "[idle]\n{}",
}


def outcome(text: str) -> Policy | str:
    try:
        return read(text)
    except CallError as exc:
        return str(exc)


@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, keys in KEYS.items() for key in keys]
)
def test_whatever_stands_there_it_is_taken_or_refused_in_one_sentence(
    section: str, key: str
) -> None:
    for value in ODD:
        text = PLACES[section].replace("{}", f"{key} = {value}")
        found = outcome(text)
        if isinstance(found, Policy):
            assert parsed(policy_toml(found), file="again.toml", now_unix_s=NOW_S) == found
        else:
            assert found.startswith("policy.toml") and "\n" not in found and len(found) < 500


@given(text=st.text(alphabet="[]{}=.,#'\"\n\\ abginopt0159-:TZ_eE+", max_size=60))
def test_any_text_is_taken_or_refused_in_one_sentence(text: str) -> None:
    for each in (text, "[goodput]\n" + text):
        found = outcome(each)
        assert isinstance(found, Policy) or (found.startswith("policy.toml") and "\n" not in found)
