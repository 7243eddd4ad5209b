"""Records without secrets are records still, whatever the secrets are."""

import json
from collections.abc import Mapping
from enum import Enum

import pytest

from elasticd.bundle.mask import Mask
from elasticd.bundle.masked_records import archived, masked_records
from elasticd.bundle.secret import secrets_of_spec
from elasticd.control.local_run.archive import archive_text
from elasticd.control.report.report import job_report
from elasticd.records import job as job_records
from elasticd.records import reason
from elasticd.records.account import late
from elasticd.records.account.incident import Incident
from elasticd.records.autoscale import decision as autoscale_decision
from elasticd.records.autoscale import policy as autoscale_policy
from elasticd.records.autoscale.curve import Curve
from elasticd.records.autoscale.decision import Decision, DecisionOutcome, Rule
from elasticd.records.autoscale.memory import Memory
from elasticd.records.autoscale.policy import (
    Behavior,
    MetricKind,
    Policy,
    Rate,
    RateUnit,
    TargetMetric,
    TargetRule,
)
from elasticd.records.checkpoint import CheckpointSpec
from elasticd.records.codec import decode, encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import KeyValue
from tests.unit.control.world_case import member, world

KEYS = Keys("other")
JOB = JobName("j")
CANARY = "canary-7f3a9"
METRIC = TargetMetric(
    name="queue", query=f'q{{secret="{CANARY}"}}', target=1.0, kind=MetricKind.LOAD
)
BEHAVIOR = Behavior(rates=(Rate(amount=1.0, unit=RateUnit.NODES, period_s=15.0),))


def items(**records: object) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=encode(record), mod_revision=1, create_revision=1)
        for key, record in records.items()
    ]


def everything(env: Mapping[str, str]) -> list[KeyValue]:
    """Each record that a report is made of, with the canary in its text."""
    failure = Failure(
        node=NodeId("a"), incarnation=Incarnation("i"), host="h", generation=Generation(1),
        rank=Rank(0), local_rank=0, slot=Slot(0), nonce=Nonce(1), exception=f"E: {CANARY}",
        traceback=f"raise E({CANARY})", log_path=f"/x/{CANARY}",
    )  # fmt: skip
    spec = JobSpec(
        name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", env=env,
        args=("--token", CANARY), run_folder="/runs",
        checkpoint=CheckpointSpec(url="s3://b/x", owner="j", options={"a": {"b": CANARY}}),
    )  # fmt: skip
    node = Node(
        node=NodeId("a"), incarnation=Incarnation("i"), host="h", address="1.2.3.4", port=1,
        slots=1, labels={"token": "short", "zone": "eu", "other": CANARY},
    )  # fmt: skip
    status = JobStatus(
        phase=Phase.FAILED, generation=Generation(2), failure=failure, message=f"it said {CANARY}"
    )
    incident = Incident(
        generation=Generation(2), node=NodeId("a"), host="h", reason=Reason.WORKER_FAILED,
        culprit=failure, note=CANARY, unknown={"newer": [CANARY]},
    )  # fmt: skip
    policy = Policy(uid="u", target=TargetRule(metrics=(METRIC,), up=BEHAVIOR), set_by=CANARY)
    decision = Decision(
        number=1, uid="u", rule=Rule.TAKE_BACK, outcome=DecisionOutcome.TAKEN_BACK, from_nodes=2,
        to_nodes=1, why=f"it said {CANARY}", outcome_why=CANARY,
    )  # fmt: skip
    memory = Memory(uid="u", held="stale", held_detail=CANARY, sentences={"target": CANARY})
    return items(
        **{
            KEYS.spec(JOB): spec,
            KEYS.status(JOB): status,
            KEYS.world(JOB): world(2, "a"),
            KEYS.member(JOB, NodeId("a")): member("a"),
            KEYS.incident(JOB, Generation(2), NodeId("a")): incident,
            KEYS.policy(JOB): policy,
            KEYS.autoscaler_memory(JOB): memory,
            KEYS.curve(JOB): Curve(uid="u"),
            KEYS.decision(JOB, 1): decision,
            KEYS.node(NodeId("a")): node,
        }
    )


def masked(stored: list[KeyValue]) -> list[KeyValue]:
    spec = decode(JobSpec, stored[0].value)
    found, unreadable = masked_records(stored, KEYS, JOB, Mask(secrets_of_spec(spec, {})))
    assert unreadable == []
    return found


def test_no_text_of_a_record_has_a_secret() -> None:
    """Also in fields that only a newer version knows, and in labels by their names."""
    found = masked(everything({"X": CANARY}))
    assert CANARY not in archive_text(found)
    node = decode(Node, found[-1].value)
    assert node.labels == {"token": "***", "zone": "eu", "other": "***X***"}
    spec = decode(JobSpec, found[0].value)
    assert spec.env == {"X": "***"}
    assert spec.checkpoint is not None and spec.checkpoint.options == {"a": {"b": "***"}}
    assert spec.args == ("--token", "***")
    assert spec.run_folder == "/runs"


WORDS = [
    str(word.value)
    for module in (job_records, late, reason, autoscale_policy, autoscale_decision)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Enum)
    for word in kind
]


@pytest.mark.parametrize("word", ["JobSpec", "other", "1.2.3.4", *WORDS])
def test_a_secret_that_is_a_word_of_ours_leaves_records_readable(word: str) -> None:
    """A variable may hold "running"; a status must say it still."""
    report = job_report(masked(everything({"SECRET_MODE": word, "X": CANARY})), KEYS, JOB)
    assert report is not None
    assert (report.status.phase, report.changes[0].reason) == (Phase.FAILED, Reason.WORKER_FAILED)
    sized = report.autoscaling
    assert sized is not None and sized.policy is not None and sized.policy.target is not None
    assert sized.memory is not None and sized.memory.held == "stale" and sized.trouble == ""
    assert [each.outcome for each in sized.decisions] == [DecisionOutcome.TAKEN_BACK]


def test_a_damaged_record_is_named_and_the_others_stay() -> None:
    """What a colleague needs may be just that."""
    stored = everything({})
    stored[1] = KeyValue(key=stored[1].key, value=b"{", mod_revision=1, create_revision=1)
    found, unreadable = masked_records(stored, KEYS, JOB, Mask())
    assert unreadable == [KEYS.status(JOB)]
    assert len(found) == len(stored) - 1


def test_archived_records_are_those_of_a_local_run() -> None:
    """Unpacked, `why --log-dir` finds them, and the logs beside them."""
    found = archived(everything({}), KEYS, JOB)
    report = job_report(found, Keys(), JOB)
    assert report is not None and report.spec.run_folder == ""
    assert json.loads(archive_text(found))["schema"] == 1
