"""The labels of all metrics, each with its closed list of words, if it has one."""

from elasticd.goodput.cause import TimeCause
from elasticd.records.account.incident import PHASES
from elasticd.records.autoscale.decision import Rule
from elasticd.records.autoscale.held import HoldReason
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.telemetry.metrics.metric import Label

__all__ = [
    "ACTION",
    "ANSWER",
    "CAUSE",
    "CHANGE_PHASES",
    "CHANGE_REASONS",
    "DIRECTION",
    "ELASTIC_PHASE",
    "JOB",
    "NAME",
    "OUTCOME",
    "PART",
    "PHASE",
    "REASON",
    "RULE",
    "SCALARS_LIMIT",
    "TIME",
    "VERSION",
    "WHY",
]

SCALARS_LIMIT = 20
"""The number of names of a script's numbers (`commit`) that become series: the first names of a
job."""
_ENDINGS = (
    Reason.BELOW_MIN,
    Reason.STOP_REQUESTED,
    Reason.ALL_SUCCEEDED,
    Reason.BUDGET_SPENT,
    Reason.REPEATED_ERROR,
    Reason.ISOLATED,
    Reason.ENDS_JOB,
)
CHANGE_REASONS = tuple(reason.value for reason in Reason if reason not in _ENDINGS)
"""The reasons for which a world may begin; reasons that only end a job are not among them."""
CHANGE_PHASES = ("unnoticed", *PHASES)
"""The phases of an incident, and before them the time in which no step ended and no node knew
why."""

JOB = Label(name="job_name", help="The job's name.")
PHASE = Label(
    name="phase", help="Where the job stands.", values=tuple(phase.value for phase in Phase)
)
REASON = Label(name="reason", help="Why the world was replaced.", values=CHANGE_REASONS)
PART = Label(name="phase", help="The part of a change of world.", values=CHANGE_PHASES)
CAUSE = Label(
    name="cause",
    help="The part of the restart budget.",
    values=tuple(cause.value for cause in Cause),
)
TIME = Label(
    name="cause",
    help="What the time went to.",
    values=tuple(cause.value for cause in TimeCause),
)
NAME = Label(
    name="name",
    help=f"As the script named it in `commit`; the first {SCALARS_LIMIT} names of the job.",
)
VERSION = Label(name="version", help="Of elasticd.")
RULE = Label(
    name="rule", help="Which had the last word.", values=tuple(rule.value for rule in Rule)
)
DIRECTION = Label(name="direction", help="To more nodes, or to fewer.", values=("up", "down"))
WHY = Label(
    name="why", help="Why nothing was changed.", values=tuple(word.value for word in HoldReason)
)
ELASTIC_PHASE = Label(
    name="phase",
    help="Where the object's job stands.",
    values=(
        "Pending",
        "Running",
        "Waiting",
        "Stopping",
        "Succeeded",
        "Failed",
        "Stopped",
        "Invalid",
        "Lost",
    ),
)
ACTION = Label(
    name="action",
    help="What was done.",
    values=(
        "add_finalizer",
        "remove_finalizer",
        "apply_replicas",
        "apply_status",
        "delete_object",
        "tell_event",
        "write_job",
        "write_policy",
        "remove_policy",
        "write_want",
        "stop_job",
        "drain_node",
        "undrain_node",
        "label_node",
    ),
)
OUTCOME = Label(
    name="outcome",
    help="Whether it was done.",
    values=("done", "outdated", "refused", "unavailable"),
)
ANSWER = Label(
    name="answer",
    help="How the API server answered.",
    values=("success", "refused", "failed", "none"),
)
