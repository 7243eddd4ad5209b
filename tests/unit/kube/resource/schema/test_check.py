"""Each field wrong in turn, with the sentence that a person reads."""

import random
from contextlib import nullcontext
from typing import Any

import pytest

from elasticd.errors import NotSupported
from elasticd.kube.resource.elastic_job import elastic_job
from elasticd.kube.resource.job_spec import job_spec
from elasticd.kube.resource.schema.field import FILES_LIMIT_BYTES, Form, all_fields
from elasticd.records.codec import encode
from elasticd.records.ids import JobName

POLICY = '[target]\nmetrics = [{name = "q", query = "sum(q)", load = 5}]\n'
GOOD: dict[str, Any] = {
    "script": "train.py",
    "files": {"train.py": "import torch\n", "lib/a.py": ""},
    "args": ["--lr", "0.1"],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "id"}}},
    ],
    "python": "/usr/bin/python3",
    "preload": ["numpy"],
    "nodes": {"min": 1, "max": 4},
    "replicas": 2,
    "slotsPerNode": 0,
    "checkpoint": {
        "url": "s3://bucket/a",
        "every": "1steps",
        "mirrorBandwidth": "1.5GiB/s",
        "keep": 0,
        "keepEverySteps": 0,
        "copy": "blocking",
        "timeoutSeconds": 1.5,
        "options": {"endpoint_url": "http://h:1"},
    },
    "limits": {"maxRestarts": 0, "maxNodeLosses": -1},
    "timeouts": {"shutdownSeconds": 0, "formationSeconds": 1, "outputSeconds": 5},
    "autoscale": {"policy": POLICY},
    "activeDeadlineSeconds": 1,
    "ttlSecondsAfterFinished": 0,
}


UPLOADED = {"url": "s3://bucket/a", "uploadEvery": "5m"}


def said(spec: Any) -> str:
    return elastic_job({"metadata": {"name": "x"}, "spec": spec}).wrong


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good spec with another value at a path of names and indices."""
    spec = {**GOOD}
    place: Any = spec
    *names, last = path.split(".")
    for name in names:
        key = int(name) if name.isdecimal() else name
        place[key] = [*place[key]] if isinstance(place[key], list) else {**place[key]}
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return spec


def test_a_good_one_can_be_submitted() -> None:
    assert said(GOOD) == ""
    assert said({"script": "a.py"}) == ""
    assert said({"command": ["sh", "-c", "true"]}) == ""
    assert said({"module": "team.train", "checkpoint": {"url": "/data"}}) == ""
    assert said({"script": "a.py", "checkpoint": {**UPLOADED, "every": "1 step"}}) == ""


WRONG: list[tuple[str, Any, str]] = [
    ("checkpoint.url", "s3:b/a", "spec.checkpoint.url 's3:b/a' is none: write it as in s3://"),
    ("checkpoint.url", "memory://a", "spec.checkpoint.url memory://a is the memory of one process"),
    ("script", None, "spec needs exactly one of script, module and command."),
    ("script", 3, "spec.script '3' is not a text: put it in quotes."),
    ("script", "", "spec.script is empty: give a value, or leave it out."),
    ("script", "x" * 5000, "spec.script has 5000 characters, more than 4096."),
    ("module", "a", "spec needs exactly one of script, module and command."),
    ("module", "a b", "spec.module 'a b' is none: write it as in team.train."),
    ("command", [], "spec.command is empty: give a value, or leave it out."),
    ("files", ["a"], "is not a map of names and values."),
    ("files", {"a": 1}, "spec.files['a'] '1' is not a text: put it in quotes."),
    ("files", {"../a": ""}, "spec.files '../a' is not usable as a file's name"),
    ("files", {"/a": ""}, "spec.files '/a' is not usable as a file's name"),
    ("files", {"a/.b": ""}, "spec.files 'a/.b' is not usable as a file's name"),
    ("files", {"a": "", "a/b": ""}, "spec.files 'a' is a file, and 'a/b' lies in it."),
    ("files", {"a": "x" * (FILES_LIMIT_BYTES + 1)}, "characters, more than 921600."),
    ("files", {"a": "x" * 500_000, "b": "ü" * 300_000}, "1100000 bytes, more than 900 KiB"),
    ("files", {f"f{n}": "" for n in range(65)}, "spec.files has 65 entries, more than 64."),
    ("args", "--lr 1", "spec.args '--lr 1' is not a list."),
    ("args", ["a", 1], "spec.args[1] '1' is not a text: put it in quotes."),
    ("args", ["a\0b"], "spec.args[0] has a character with the number 0"),
    ("env", {"A": "1"}, "is not a list."),
    ("env", [{"value": "1"}], "spec.env[0].name is missing: it must be given."),
    ("env", [{"name": "A B"}], "spec.env[0].name 'A B' is none: write it as in NCCL_DEBUG."),
    ("env", [{"name": "A"}, {"name": "A"}], "spec.env has A twice: take one of them."),
    ("env.1.value", "x", "spec.env B has value and valueFrom: take one of them."),
    ("env.1.valueFrom", {}, "valueFrom.secretKeyRef is missing: it must be given."),
    ("env.1.valueFrom.secretKeyRef.name", "../x", "is none: write it as in s3-credentials."),
    ("env.1.valueFrom.secretKeyRef.key", "a/b", "is none: write it as in access-key."),
    ("env.1.valueFrom.secretKeyRef.key", "..", "is none: write it as in access-key."),
    ("env.1.valueFrom.secretKeyRef.key", ".", "is none: write it as in access-key."),
    ("env.1.valueFrom.secretKeyRef.key", "..data", "is none: write it as in access-key."),
    ("python", "python3", "is none: write it as in /opt/venv/bin/python."),
    ("workingDir", "/w", "spec.files and spec.workingDir contradict each other"),
    ("workingDir", "here", "spec.workingDir 'here' is none: write it as in /workspace."),
    ("preload", [""], "spec.preload[0] is empty: give a value, or leave it out."),
    ("nodes", 3, "spec.nodes '3' is not an object."),
    ("nodes.min", "1", "spec.nodes.min '1' is not a whole number."),
    ("nodes.min", True, "spec.nodes.min 'true' is not a whole number."),
    ("nodes.min", 0, "spec.nodes.min 0 is below 1, the least that makes sense."),
    ("nodes.max", 10_001, "spec.nodes.max 10001 is above 10000, the most that makes sense."),
    ("nodes.min", 5, "spec.nodes.min 5 must not be above spec.nodes.max 4."),
    ("replicas", 5, "spec.replicas 5 is outside of spec.nodes 1:4"),
    ("slotsPerNode", -1, "spec.slotsPerNode -1 is below 0, the least that makes sense."),
    ("slotsPerNode", 1.5, "spec.slotsPerNode '1.5' is not a whole number."),
    ("checkpoint.url", None, "spec.checkpoint.url is missing: it must be given."),
    ("checkpoint.url", "here", "spec.checkpoint.url 'here' is none: write it as in s3://"),
    ("checkpoint.url", "ftq://a", "spec.checkpoint.url ftq:// is no kind of storage"),
    ("checkpoint.url", "s3://", "spec.checkpoint.url s3:// names no bucket"),
    ("checkpoint.url", "s3://k:s@b/c", "spec.checkpoint.url: leave credentials"),
    ("checkpoint.every", "soon", "spec.checkpoint.every soon is neither a time"),
    ("checkpoint", {**UPLOADED, "every": "5m"}, "spec.checkpoint.uploadEvery says which of the"),
    ("checkpoint", {**UPLOADED, "every": "11steps"}, "(spec.checkpoint.every: 1steps)."),
    ("checkpoint", UPLOADED, "spec.checkpoint.uploadEvery says which of the snapshots of each"),
    ("checkpoint.uploadEvery", "9steps", "spec.checkpoint.uploadEvery 9steps is no time"),
    ("checkpoint.uploadEvery", "", "spec.checkpoint.uploadEvery is empty"),
    ("checkpoint.mirrorBandwidth", "1G", "'1G' is none: write it as in 200MB/s."),
    ("checkpoint.mirrorBandwidth", "9KB/s", "mirrorBandwidth 9KB/s is below 1MB/s"),
    ("checkpoint.mirrorBandwidth", "1iB/s", "'1iB/s' is none: write it as in 200MB/s."),
    ("checkpoint.keep", -1, "spec.checkpoint.keep -1 is below 0"),
    ("checkpoint.keepEverySteps", "x", "spec.checkpoint.keepEverySteps 'x' is not a whole number."),
    ("checkpoint.copy", "fast", "'fast' is none of auto, blocking, overlapped."),
    ("checkpoint.timeoutSeconds", "1m", "timeoutSeconds '1m' is not a number of seconds."),
    ("checkpoint.options", [], "spec.checkpoint.options '[]' is not an object."),
    ("checkpoint.options", {"secret": "x"}, "spec.checkpoint.options gives a secret in 'secret'"),
    ("limits.maxRestarts", -1, "spec.limits.maxRestarts -1 is below 0"),
    ("limits.maxNodeLosses", -2, "spec.limits.maxNodeLosses -2 is below -1"),
    ("timeouts.shutdownSeconds", -1, "spec.timeouts.shutdownSeconds -1 is below 0"),
    ("timeouts.shutdownSeconds", float("inf"), "is not a number of seconds."),
    ("timeouts.shutdownSeconds", 1e9, "is above 31536000, the most that makes sense."),
    ("timeouts.formationSeconds", 0.5, "spec.timeouts.formationSeconds 0.5 is below 1"),
    ("timeouts.joinWindowSeconds", "x", "is not a number of seconds."),
    ("timeouts.isolationSeconds", -0.1, "is below 0"),
    ("timeouts.progressSeconds", [], "is not a number of seconds."),
    ("timeouts.outputSeconds", 4, "spec.timeouts.outputSeconds 4 is below 5 seconds"),
    ("autoscale", {}, "spec.autoscale.policy is missing: it must be given."),
    ("autoscale.policy", "[", "spec.autoscale.policy is not TOML"),
    ("autoscale.policy", "[gopdput]\n", "spec.autoscale.policy"),
    ("autoscale.policy", f"max_nodes = 9\n{POLICY}", "max_nodes = 9 is outside of spec.nodes 1:4"),
    ("nodes", {"min": 2, "max": 2}, "spec.autoscale: the job runs on exactly 2 nodes"),
    ("nodeSelector", ["a"], "is not a map of names and values."),
    ("nodeSelector", {"": "a"}, "spec.nodeSelector '' is no name of a label"),
    ("nodeSelector", {"a=b": "c"}, "spec.nodeSelector 'a=b' is no name of a label"),
    ("nodeSelector", {"a" * 318: "b"}, "is no name of a label"),
    ("nodeSelector", {"a": 1}, "spec.nodeSelector['a'] '1' is not a text"),
    ("priority", "high", "spec.priority 'high' is not a whole number."),
    ("priority", 1 << 31, "spec.priority 2147483648 is above 2147483647"),
    ("activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds 0 is below 1"),
    ("ttlSecondsAfterFinished", -1, "spec.ttlSecondsAfterFinished -1 is below 0"),
]


@pytest.mark.parametrize(("path", "value", "sentence"), WRONG)
def test_what_is_wrong_is_said_in_one_sentence(path: str, value: Any, sentence: str) -> None:
    found = said(changed(path, value))
    assert sentence in found
    assert found.startswith("spec") and found.endswith((".", "?")) and "\n" not in found
    assert len(found) < 400, "a value is not repeated whole"
    assert "--storage-options" not in found, "an object has fields, not flags"


def test_python_is_not_for_a_command() -> None:
    spec = {"command": ["a"], "python": "/usr/bin/python3"}
    assert said(spec).startswith("spec.python and spec.command contradict each other")


def test_command_without_a_program_is_refused() -> None:
    """A worker would fail at its start, as often as the job may."""
    assert said({"command": ["", "x"]}) == "spec.command[0] is empty: it is the program to run."
    assert said({"command": ["x", ""]}) == ""


@pytest.mark.parametrize(
    ("script", "is_there"),
    [
        *(("a.py", True), ("./a.py", True), ("lib/b.py", True), ("app", True), ("/srv/c.py", True)),
        *(("b.py", False), ("lib", False), ("A.py", False)),
    ],
)
def test_script_that_is_not_among_the_files_is_refused(script: str, is_there: bool) -> None:
    """Workers start in a folder with these files alone, and each start would fail."""
    files = dict.fromkeys(("a.py", "lib/b.py", "app/__main__.py"), "")
    found = said({"script": script, "files": files})
    assert found.startswith("" if is_there else f"spec.script '{script}' is not among spec.files")
    assert bool(found) is not is_there and said({"script": script}) == ""


@pytest.mark.parametrize("count", [44, 60])
def test_spec_without_room_in_one_record_is_refused(count: int) -> None:
    """Each part keeps its limit, and etcd takes no record of all of them, as the encoder says."""
    draw = random.Random(1)
    letters = "".join(map(chr, range(35, 92)))
    env = [
        {"name": f"A{n}", "value": "".join(draw.choices(letters, k=8_000))} for n in range(count)
    ]
    files = {"a.py": "".join(draw.choices(letters, k=FILES_LIMIT_BYTES))}
    spec = {"script": "a.py", "env": env, "files": files}
    job = elastic_job({"metadata": {"name": "x"}, "spec": spec})
    with pytest.raises(NotSupported) if job.wrong else nullcontext():
        encode(job_spec(job, JobName("x")))
    assert ("etcd takes no more" in job.wrong) is (count == 60)


def test_every_field_stands_in_the_table_of_wrong_ones() -> None:
    """A field that is new here is to be tried as well."""
    tried = {path.split(".")[0] for path, _, _ in WRONG}
    assert {path.split(".")[1].removesuffix("[]") for path, _ in all_fields()} == tried
    numbers = {
        path.removeprefix("spec.")
        for path, field in all_fields()
        if field.form in (Form.WHOLE, Form.NUMBER)
    }
    assert numbers <= {path for path, _, _ in WRONG}


@pytest.mark.parametrize("seed", range(40))
def test_no_spec_whatever_is_a_traceback(seed: int) -> None:
    """A value of any form at any place becomes a sentence, or is right."""
    draw = random.Random(seed)
    values: list[Any] = [
        None,
        True,
        -1,
        0,
        3,
        1e300,
        "",
        "x",
        "a\0",
        [],
        ["x"],
        [[]],
        {},
        {"a": {}},
        [None],
    ]
    paths = [path.removeprefix("spec.").replace("[]", ".0") for path, _ in all_fields()]
    for _ in range(60):
        spec = GOOD
        for path in draw.sample(paths, 2):
            try:
                spec = changed(path, draw.choice(values))
            except (KeyError, IndexError, TypeError):
                continue
        found = elastic_job({"metadata": {"name": "x"}, "spec": spec})
        assert found.wrong or found.spec is not None


def test_a_bug_in_a_check_is_the_trouble_of_one_object() -> None:
    """Half of a surrogate pair, which no API server lets through, is what no check thinks of."""
    found = said({"script": "a.py", "files": {"a.py": "\ud800"}})
    assert found.startswith("The spec cannot be checked (UnicodeEncodeError")
