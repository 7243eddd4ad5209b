"""The list of all metrics.

Labels are the job's name and words of closed lists, never a rank, a pod, a node or a generation:
such a label would make a new series at every change. The job's name is `job_name`, since `job`
belongs to Prometheus, which would rename elasticd's label to `exported_job`. The target
(`instance`) shows from which node a series comes.
"""

from elasticd.store.request_times import BOUNDS_S
from elasticd.telemetry.metrics import label
from elasticd.telemetry.metrics.metric import Exporter, Label, Metric, MetricType, MetricUnit

__all__ = [
    "CATALOG",
    "EVALUATION_BOUNDS_S",
    "by_name",
]

EVALUATION_BOUNDS_S = (0.05, 0.25, 1.0, 5.0, 15.0)
"""The bounds of an evaluation's duration in seconds. The first is the cost of a hundred jobs,
without Prometheus' own time; the last but one is above the time limit of a source, and the last is
the time between two evaluations."""
_COUNTER, _GAUGE, _S, _BYTES = (
    MetricType.COUNTER,
    MetricType.GAUGE,
    MetricUnit.SECONDS,
    MetricUnit.BYTES,
)


def _metric(
    exporter: Exporter,
    name: str,
    kind: MetricType,
    help: str,
    *labels: Label,
    unit: MetricUnit = MetricUnit.NONE,
    bounds: tuple[float, ...] = (),
) -> Metric:
    return Metric(
        name=name,
        kind=kind,
        unit=unit,
        help=help,
        labels=labels,
        exporter=exporter,
        bounds=bounds,
    )


def _of_node(
    name: str, kind: MetricType, help: str, *labels: Label, unit: MetricUnit = MetricUnit.NONE
) -> Metric:
    return _metric(Exporter.AGENT, name, kind, help, *labels, unit=unit)


def _of_job(name: str, help: str, *labels: Label, unit: MetricUnit = MetricUnit.NONE) -> Metric:
    return _metric(Exporter.RANK_0, f"elasticd_{name}", _GAUGE, help, label.JOB, *labels, unit=unit)


def _counted(name: str, help: str, *labels: Label, unit: MetricUnit = MetricUnit.NONE) -> Metric:
    name = f"elasticd_{name}_total"
    return _metric(Exporter.SERVING, name, _COUNTER, help, label.JOB, *labels, unit=unit)


def _of_keeper(
    name: str, kind: MetricType, help: str, *, unit: MetricUnit = MetricUnit.NONE
) -> Metric:
    name = f"elasticd_checkpoint_{name}"
    return _metric(Exporter.KEEPER, name, kind, help, label.JOB, unit=unit)


def _of_writer(name: str, kind: MetricType, help: str) -> Metric:
    return _metric(Exporter.WRITER, f"elasticd_tensorboard_{name}", kind, help, label.JOB)


def _of_autoscaler(
    name: str,
    kind: MetricType,
    help: str,
    *labels: Label,
    unit: MetricUnit = MetricUnit.NONE,
    bounds: tuple[float, ...] = (),
) -> Metric:
    name = f"elasticd_autoscaler_{name}"
    return _metric(Exporter.AUTOSCALER, name, kind, help, *labels, unit=unit, bounds=bounds)


def _of_operator(
    name: str,
    kind: MetricType,
    help: str,
    *labels: Label,
    unit: MetricUnit = MetricUnit.NONE,
    bounds: tuple[float, ...] = (),
) -> Metric:
    name = f"elasticd_operator_{name}"
    return _metric(Exporter.OPERATOR, name, kind, help, *labels, unit=unit, bounds=bounds)


CATALOG: tuple[Metric, ...] = (
    # --- a node -------------------------------------------------------------------------------
    _of_node("elasticd_build_info", _GAUGE, "Always 1; says which version runs.", label.VERSION),
    _of_node("elasticd_slots", _GAUGE, "Workers that this node can hold at once."),
    _of_node("elasticd_slots_used", _GAUGE, "Slots of this node that jobs hold."),
    _of_node(
        "elasticd_job_slots",
        _GAUGE,
        "Slots of this node that the job holds; 0 for a job that is not over and that this node "
        "does not serve, so that the sum over all nodes is 0 where nobody serves it.",
        label.JOB,
    ),
    _of_node("elasticd_node_draining", _GAUGE, "1 while this node is drained, else 0."),
    _of_node(
        "elasticd_lease_margin_seconds",
        _GAUGE,
        "How long this node's lease in etcd surely lives on; 0: nothing may be written.",
        unit=_S,
    ),
    _metric(
        Exporter.AGENT,
        "elasticd_etcd_request_seconds",
        MetricType.HISTOGRAM,
        "How long calls to etcd took, all tries and endpoints included, also of those that failed.",
        unit=_S,
        bounds=BOUNDS_S,
    ),
    _of_node(
        "elasticd_etcd_refused_writes",
        _GAUGE,
        "Records that etcd refuses to take from this node at the moment; /healthz says why.",
    ),
    _of_node(
        "elasticd_owner_busy_seconds",
        _GAUGE,
        "How long the thread that owns the agent's state has been at one thing; 0: it waits.",
        unit=_S,
    ),
    _of_node("process_cpu_seconds_total", _COUNTER, "Processor time that the agent used.", unit=_S),
    _of_node("process_resident_memory_bytes", _GAUGE, "Resident memory of the agent.", unit=_BYTES),
    _of_node("process_open_fds", _GAUGE, "Descriptors that the agent has open."),
    _of_node("process_start_time_seconds", _GAUGE, "When the agent began (Unix time).", unit=_S),
    # --- a job, as it stands --------------------------------------------------------------------
    _of_job("job_phase", "1 for the phase that the job is in, 0 for the others.", label.PHASE),
    _of_job("workers", "Ranks of the world that stands; 0 while the job waits or is over."),
    _of_job("nodes", "Nodes of the world that stands; 0 while the job waits or is over."),
    _of_job("wanted_nodes", "Nodes that the job would have now; 0 once it is over."),
    _of_job("min_nodes", "The least number of nodes with which the job trains."),
    _of_job("max_nodes", "The greatest number of nodes that the job takes."),
    _of_job("generation", "The number of the newest world; 0: there was none yet."),
    _of_job(
        "generation_start_timestamp_seconds",
        "When this node saw that world begin (Unix time); 0: there was none yet.",
        unit=_S,
    ),
    _of_job(
        "restart_budget",
        "Changes of world that this cause may bring about before the job fails; +Inf: no limit.",
        label.CAUSE,
    ),
    _of_job("restart_budget_used", "How much of that is used since the last refill.", label.CAUSE),
    _of_job(
        "step",
        "Steps that are applied, as rank 0 last said; absent where nobody tells of steps.",
    ),
    _of_job("epoch", "The epoch of that step."),
    _of_job(
        "scalar",
        "What rank 0 last gave to `commit` under this name; NaN and infinities as they are.",
        label.NAME,
    ),
    _of_job(
        "late_ratio",
        "By how much steps of the latest node take longer than others would (0.3: by 30 %); "
        "0: no node is late, or none can be told (docs/guides/late-nodes.md).",
    ),
    # --- a job, as it goes ----------------------------------------------------------------------
    _counted("steps", "Steps applied; a step that is done again counts again."),
    _counted(
        "samples",
        "Samples in them: of all ranks where a `Loader` gives the batches, of rank 0 alone where "
        "its script tells them.",
    ),
    _counted("step_seconds", "How long those steps took, by rank 0's step time.", unit=_S),
    _counted("changes", "Worlds that began, the first one included.", label.REASON),
    _counted(
        "change_seconds",
        "How long each part of a change of world took on the node of rank 0, the first world's "
        "not included.",
        label.PART,
        unit=_S,
    ),
    _counted("lost_steps", "Steps that had to be done again after a change of world."),
    _metric(
        Exporter.SERVING,
        "elasticd_output_free_bytes",
        _GAUGE,
        "What is left on the disk to which the job's workers on this node write; lines that find "
        "no room there are dropped. Absent while its file system hangs. A user's quota is not in "
        "it.",
        label.JOB,
        unit=_BYTES,
    ),
    # --- where its time went ---------------------------------------------------------------------
    _metric(
        Exporter.HOLDING,
        "elasticd_slot_seconds_total",
        _COUNTER,
        "Slot-seconds by what they went to; of what a failure could still take back, nothing is in "
        "it yet.",
        label.JOB,
        label.TIME,
        unit=_S,
    ),
    _metric(
        Exporter.HOLDING,
        "elasticd_step_wait_seconds_total",
        _COUNTER,
        "How long committed steps of the workers here waited for collectives, of each worker.",
        label.JOB,
        unit=_S,
    ),
    # --- a job's keepers ------------------------------------------------------------------------
    _of_keeper(
        "durable_timestamp_seconds",
        _GAUGE,
        "When the newest checkpoint that this keeper knows became durable (Unix time); 0: none.",
        unit=_S,
    ),
    _of_keeper("durable_step", _GAUGE, "The step of that checkpoint."),
    _of_keeper(
        "keeper_start_timestamp_seconds",
        _GAUGE,
        "When this keeper began (Unix time): the age where there is no checkpoint yet.",
        unit=_S,
    ),
    _of_keeper("saved_total", _COUNTER, "Checkpoints committed by this keeper."),
    _of_keeper("failed_total", _COUNTER, "Snapshots that were given up."),
    _of_keeper(
        "written_bytes_total",
        _COUNTER,
        "Bytes of the checkpoints committed by this keeper.",
        unit=_BYTES,
    ),
    _of_keeper(
        "save_seconds",
        _GAUGE,
        "How long the newest took from whole in memory to durable.",
        unit=_S,
    ),
    _of_keeper(
        "snapshots_held_up",
        _GAUGE,
        "1 while no snapshot in memory is taken until an upload is done, since there is no memory "
        "for a third buffer; else 0.",
    ),
    _of_keeper(
        "mirrored_step",
        _GAUGE,
        "The step of the newest share of this node that the next node holds too; -1: none.",
    ),
    _of_keeper(
        "mirrored_bytes_total",
        _COUNTER,
        "Bytes of shares that were sent to the next node.",
        unit=_BYTES,
    ),
    _of_keeper(
        "mirror_failed_total",
        _COUNTER,
        "Tries to send a share to the next node that failed.",
    ),
    # --- its event files ----------------------------------------------------------------------
    _of_writer("files_total", _COUNTER, "Event files that this writer wrote."),
    _of_writer(
        "dropped_steps_total",
        _COUNTER,
        "Steps that were left out: there was no room for more while the storage was away.",
    ),
    _of_writer("unwritten_steps", _GAUGE, "Steps that this writer keeps, and that are in no file."),
    # --- the autoscaler -----------------------------------------------------------------------
    _of_autoscaler("leader", _GAUGE, "1 while this process decides, 0 while it stands by."),
    _of_autoscaler(
        "decisions_total",
        _COUNTER,
        "Changes of size that were decided.",
        label.RULE,
        label.DIRECTION,
    ),
    _of_autoscaler(
        "held_total",
        _COUNTER,
        "Evaluations of a job that left its size as it was for this reason; each evaluation "
        "counts, so the rate is above 0 for as long as it lasts.",
        label.WHY,
    ),
    _of_autoscaler(
        "evaluation_seconds",
        MetricType.HISTOGRAM,
        "How long evaluations of all jobs took, the source's share included.",
        unit=_S,
        bounds=EVALUATION_BOUNDS_S,
    ),
    # --- the operator -------------------------------------------------------------------------
    _of_operator("leader", _GAUGE, "1 while this process acts, 0 while it stands by."),
    _of_operator(
        "following",
        _GAUGE,
        "1 while this process leads and follows the API server's watches, else 0.",
    ),
    _of_operator("jobs", _GAUGE, "ElasticJobs by the phase in their status.", label.ELASTIC_PHASE),
    _of_operator(
        "actions_total",
        _COUNTER,
        "What was done to Kubernetes or etcd.",
        label.ACTION,
        label.OUTCOME,
    ),
    _of_operator(
        "api_requests_total", _COUNTER, "Requests to the API server, watches too.", label.ANSWER
    ),
    _of_operator(
        "reconciliation_seconds",
        MetricType.HISTOGRAM,
        "How long one look at everything took, with what was done about it.",
        unit=_S,
        bounds=EVALUATION_BOUNDS_S,
    ),
)

_BY_NAME = {metric.name: metric for metric in CATALOG}


def by_name(name: str) -> Metric:
    """Return the metric of this name.

    Raises: KeyError: the list has no such metric.
    """
    return _BY_NAME[name]
