"""Whether the invariants held, from the raw history alone. Pure.

Imports nothing of the agent, of the rendezvous or of the library (a test sees to that): what is
judged must not help to judge. README.md lists all invariants (I1 to I11). This module judges I1,
I4, I6, I7, I8, I9 and I11, and `saved` judges I2 and I3; no module of chaos judges I5 and I10.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from chaos.history.lineage import Lineage, trace
from chaos.history.records import Applied, History, Struck, Took
from chaos.history.recovery import Recovery, commits, full_goodput, goodput, recoveries
from chaos.plan.scenario import Verdict
from chaos.verdict.finding import Finding, Judgement, finding_of

__all__ = ["judge"]

LATE_STEPS = 1
"""Steps that one rank may apply after a newer generation's first: the collectives of a step that
was in flight may be over before a rank hears of the change, or is stopped. A second one would need
all ranks of the old generation."""


def judge(history: History, want: Verdict, reference: Mapping[int, float] | None) -> Judgement:
    """Judge a run; `reference` has the loss of each step of an undisturbed run."""
    lineage = trace(history)
    found = commits(lineage.rounds)
    recovered = recoveries(history, found)
    late = _late(history)
    worst, parity = _parity(lineage, want, reference)
    findings = (
        _one_generation(history, late),
        _each_sample_once(history, lineage),
        _replicas_equal(lineage),
        _generations_grow(history, lineage),
        _nobody_outlives(history, want),
        _progress(history, want, recovered),
        _budget(history, want),
        _lost(history, lineage, want),
        parity,
        _schedule(history, lineage, want),
        _goodput(want, goodput(lineage, found)),
        _clean(history),
    )
    return Judgement(
        findings=findings,
        recoveries=tuple(recovered),
        generations=len(lineage.rounds),
        committed_steps=len(lineage.steps),
        discarded_steps=len(lineage.discarded),
        late_steps=sum(late.values()),
        samples=sum(
            len(took.samples)
            for step, each in lineage.steps.items()
            for took in each.took.get(step, {}).values()
        ),
        worst_parity=worst,
        goodput=goodput(lineage, found),
        full_goodput=full_goodput(
            lineage, found, history.began.full_size if history.began is not None else 0
        ),
    )


# --- the invariants ---------------------------------------------------------------------------


def _late(history: History) -> Counter[tuple[int, int]]:
    """Count the steps that each rank applied after a newer generation's first."""
    first_s: dict[int, float] = {}
    for applied in history.applied:
        first_s.setdefault(applied.generation, applied.at_s)
    newer_s: dict[int, float] = {}
    earliest = float("inf")
    for generation in sorted(first_s, reverse=True):
        newer_s[generation] = earliest
        earliest = min(earliest, first_s[generation])
    return Counter(
        (applied.generation, applied.rank)
        for applied in history.applied
        if applied.at_s > newer_s[applied.generation]
    )


def _one_generation(history: History, late: Counter[tuple[int, int]]) -> Finding:
    return finding_of(
        "I1",
        "at most one live generation commits steps",
        len(history.applied),
        (
            f"rank {rank} of generation {generation} applied {count} steps after a newer one had"
            for (generation, rank), count in late.items()
            if count > LATE_STEPS
        ),
    )


def _each_sample_once(history: History, lineage: Lineage) -> Finding:
    wrong: list[str] = []
    newest = max(lineage.steps, default=0)
    missing = [step for step in range(1, newest + 1) if step not in lineage.steps]
    if missing:
        wrong.append(f"{len(missing)} committed steps are nobody's, the first is {missing[0]}")
    counts: dict[int, Counter[int]] = {}
    for step, each in lineage.steps.items():
        took = each.took.get(step, {})
        if len(took) != each.size:
            wrong.append(
                f"step {step} of generation {each.generation} stands with the shares of "
                f"{len(took)} of {each.size} ranks"
            )
        epochs = {one.epoch for one in took.values()}
        if len(epochs) > 1:
            wrong.append(f"step {step} mixes the epochs {sorted(epochs)}")
        for one in took.values():
            counts.setdefault(one.epoch, Counter()).update(one.samples)
    length = history.began.samples if history.began is not None else 0
    last = max(counts, default=0)
    for epoch, counter in sorted(counts.items()):
        repeated = sum(1 for count in counter.values() if count > 1)
        if repeated:
            wrong.append(f"{repeated} samples of epoch {epoch} count more than once")
        # The last epoch may be cut short by the end of the run.
        if epoch < last and len(counter) < length:
            wrong.append(f"{length - len(counter)} samples of epoch {epoch} count never")
        if any(index < 0 or index >= length for index in counter):
            wrong.append(f"epoch {epoch} has samples that the dataset has not")
    for epoch in range(last):
        if epoch not in counts:
            wrong.append(f"epoch {epoch} is missing")
    checked = sum(counter.total() for counter in counts.values())
    return finding_of("I4", "each sample counts exactly once per epoch", checked, wrong)


def _replicas_equal(lineage: Lineage) -> Finding:
    wrong: list[str] = []
    checked = 0
    standing: dict[int, str] = {}
    for each in lineage.rounds:
        for step, applied in each.applied.items():
            checked += 1
            digests = {one.digest for one in applied.values()}
            if len(digests) > 1:
                by_rank = {rank: one.digest for rank, one in sorted(applied.items())}
                wrong.append(f"step {step} of generation {each.generation} differs: {by_rank}")
            if lineage.steps.get(step) is each:
                standing[step] = next(iter(digests))
    for each in lineage.rounds:
        checked += 1
        digests = {one.digest for one in each.entered.values()}
        if len(digests) > 1:
            wrong.append(f"ranks of generation {each.generation} began with different states")
        base = each.base
        # A base that a later generation took back again is not in the line any more.
        maker = lineage.steps.get(base)
        is_older = maker is not None and maker.generation < each.generation
        if is_older and base in standing and standing[base] not in digests:
            wrong.append(
                f"generation {each.generation} began from step {base} with another state than "
                "that step had"
            )
    return finding_of("I6", "all replicas are equal after each commit", checked, wrong)


def _generations_grow(history: History, lineage: Lineage) -> Finding:
    wrong = list(lineage.wrong)
    owners: dict[tuple[int, int], str] = {}
    newest: dict[str, int] = {}
    sizes: dict[int, int] = {}
    for entered in history.entered:
        key = (entered.generation, entered.rank)
        if owners.setdefault(key, entered.process) != entered.process:
            wrong.append(f"rank {key[1]} of generation {key[0]} is two processes")
        if newest.get(entered.process, 0) >= entered.generation:
            wrong.append(
                f"process {entered.process} entered generation {entered.generation} after "
                f"{newest[entered.process]}"
            )
        newest[entered.process] = entered.generation
        if sizes.setdefault(entered.generation, entered.size) != entered.size:
            wrong.append(f"generation {entered.generation} has two sizes")
        if not 0 <= entered.rank < entered.size:
            wrong.append(f"rank {entered.rank} of {entered.size} in {entered.generation}")
    made: list[Took | Applied] = [*history.took, *history.applied]
    for record in made:
        if owners.get((record.generation, record.rank)) != record.process:
            wrong.append(
                f"process {record.process} made steps as rank {record.rank} of generation "
                f"{record.generation}, which it is not"
            )
    return finding_of(
        "I7", "generations grow, each rank is one process", len(history.entered), wrong
    )


def _nobody_outlives(history: History, want: Verdict) -> Finding:
    return finding_of(
        "I8",
        f"no worker runs on for more than {want.outlive_s:g} s after its agent",
        len(history.outlived),
        (
            f"workers of {one.node} went on for {one.after_s - one.stopped_s:.2f} s after their "
            f"agent: {one.pids}"
            for one in history.outlived
            if one.pids or one.after_s - one.stopped_s > want.outlive_s
        ),
    )


def _progress(history: History, want: Verdict, recovered: Sequence[Recovery]) -> Finding:
    wrong = [one.why for one in history.gave_up]
    if want.end == "failed":
        return finding_of("I9", "progress resumes within the bound", 0, wrong)
    for number, one in enumerate(recovered):
        fault = one.fault
        bound_s = _bound_s(recovered, number)
        if one.recover_s is None:
            wrong.append(f"no commit after {_name(fault)}")
        elif one.recover_s > bound_s:
            wrong.append(
                f"{one.recover_s:.2f} s from {_name(fault)} to the next commit; the bound is "
                f"{bound_s:g} s"
            )
        has_company = fault.is_overlap or (
            number + 1 < len(recovered) and recovered[number + 1].fault.is_overlap
        )
        if has_company:
            continue
        if one.full_s is None or one.full_s > want.full_s:
            wrong.append(f"not at full size {want.full_s:g} s after {_name(fault)} was over")
    return finding_of("I9", "progress resumes within the bound", len(recovered), wrong)


def _bound_s(recovered: Sequence[Recovery], number: int) -> float:
    """Add the bounds of those that were not over when it struck, and that struck before it was."""
    one = recovered[number]
    bound_s = one.fault.recover_s
    is_chained = one.fault.is_overlap
    for earlier in reversed(recovered[:number] if is_chained else []):
        if earlier.recover_s is None or earlier.fault.at_s + earlier.recover_s > one.fault.at_s:
            bound_s += earlier.fault.recover_s
        if not earlier.fault.is_overlap:
            break
    for later in recovered[number + 1 :]:
        if not later.fault.is_overlap or later.fault.at_s > one.fault.at_s + bound_s:
            break
        bound_s += later.fault.recover_s
    return bound_s


def _budget(history: History, want: Verdict) -> Finding:
    wrong = []
    for status in history.statuses:
        for what, used, most in (
            ("user errors", status.user_errors, status.most_user_errors),
            ("node losses", status.node_losses, status.most_node_losses),
        ):
            if 0 <= most < used:
                wrong.append(f"{used} {what} were paid for, the limit is {most}")
    phase = history.ended.phase if history.ended is not None else "unknown"
    message = history.ended.message if history.ended is not None else ""
    if phase != want.end:
        wrong.append(f"the job ended {phase}, not {want.end}: {message}")
    return finding_of("I11", f"the restart budget is bounded, the job ends {want.end}", 1, wrong)


# --- what is promised beyond them -------------------------------------------------------------


def _lost(history: History, lineage: Lineage, want: Verdict) -> Finding:
    wrong = []
    if want.most_steps_back:
        wrong += [
            f"generation {generation} took back {count} steps, at most {want.most_steps_back} may "
            "lie between two snapshots"
            for generation, count in lineage.taken_back.items()
            if count > want.most_steps_back
        ]
    elif not want.may_start_over:
        wrong += [
            f"step {step} was applied by all ranks of generation {generation} and is gone"
            for generation, step in lineage.undone
        ]
        most = want.most_lost_steps_per_fault * max(1, len(history.struck))
        if len(lineage.discarded) > most:
            wrong.append(
                f"{len(lineage.discarded)} applied steps were done again, at most {most} may be"
            )
    return finding_of("lost", "no committed step is lost", len(lineage.steps), wrong)


def _parity(
    lineage: Lineage, want: Verdict, reference: Mapping[int, float] | None
) -> tuple[float | None, Finding]:
    claim = f"losses are those of an undisturbed run within {want.parity:g}"
    if reference is None or want.parity <= 0:
        return None, finding_of("parity", claim, 0, ())
    worst, checked = 0.0, 0
    wrong = []
    for step, each in lineage.steps.items():
        took = each.took.get(step, {})
        count = sum(len(one.samples) for one in took.values())
        if step not in reference or not count:
            wrong.append(f"there is nothing to compare step {step} with")
            continue
        loss = sum(one.loss for one in took.values()) / count
        checked += 1
        scale = max(abs(reference[step]), 1e-300)
        difference = abs(loss - reference[step]) / scale
        worst = max(worst, difference)
        if not difference <= want.parity:  # also what is not a number
            wrong.append(f"loss of step {step} is {loss!r}, undisturbed {reference[step]!r}")
    return worst, finding_of("parity", claim, checked, wrong)


def _schedule(history: History, lineage: Lineage, want: Verdict) -> Finding:
    wrong = []
    wanted = history.began.faults if history.began is not None else 0
    if len(history.struck) != wanted:
        wrong.append(f"{len(history.struck)} of {wanted} faults were brought about")
    changes = max(0, len(lineage.rounds) - 1)
    if changes < want.least_changes:
        wrong.append(f"only {changes} changes of world: the faults did not do what they should")
    if 0 <= want.most_changes < changes:
        wrong.append(f"{changes} changes of world, at most {want.most_changes} are right")
    if not lineage.steps:
        wrong.append("there is no committed step")
    return finding_of("schedule", "every fault struck, and had the effect it has", wanted, wrong)


def _goodput(want: Verdict, share: float | None) -> Finding:
    wrong = []
    if want.least_goodput and (share is None or share < want.least_goodput):
        wrong.append(f"goodput {'unknown' if share is None else format(share, '.1%')}")
    checked = 1 if want.least_goodput else 0
    return finding_of("goodput", f"goodput is at least {want.least_goodput:.0%}", checked, wrong)


def _clean(history: History) -> Finding:
    return finding_of(
        "clean",
        "nothing is left running",
        1,
        (f"process {one.pid} was left: {one.command}" for one in history.left_behind),
    )


def _name(fault: Struck) -> str:
    return f"fault {fault.number} ({fault.kind} of {fault.victim})"
