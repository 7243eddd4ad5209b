"""A rank dies at each point of a step; what is learned is what an undisturbed run learns.

One job lives through all points of a case: in each world of full size another rank kills itself at
the next one. What every rank was about to apply is in its output. From that the whole run is done
again here, in one process and with plain PyTorch, share by share: in double precision nothing but
the order of sums differs, also with BatchNorm, whose statistics depend on who had which share. With
the abort flag the sums are exact, and what is learned is the same bit for bit.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from elasticd.train.data.loader import loader_core_of
from elasticd.train.optimizer.parameter_change import FIRST_COMMITS
from tests.fixtures.cluster import SCRIPTS, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.scripts.points import Parts, dataset, loader

FULL = 3
SCRIPT = SCRIPTS / "points.py"
REL = 1e-9

Share = tuple[float, list[int]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Features of the training, and the points at which ranks die, one after the other."""

    features: str = ""
    points: str
    spare: int = 0
    linger_s: float = 0.0
    """How long the others stay at the point, so that the news meets them there."""
    after: int = 2
    """So many steps of its world are committed before a rank dies."""
    rel: float = REL
    """How much what is learned may differ."""


CASES = {
    "plain": Case(points="forward0,loss0,bucket0,bucket1,bucket2,optimizer0,stepped,commit"),
    "scaler": Case(
        features="scaler,accumulate",
        points="forward1,bucket1,unscaled,optimizer0,scaled,stepped,commit",
        linger_s=0.15,
    ),
    "flag": Case(
        features="flag",
        points="loss0,bucket1,reduced,look,optimizer0,optimized0,stepped,commit,committed",
        linger_s=0.15,
        after=FIRST_COMMITS + 2,
        rel=0.0,
    ),
    # DDP hands out the running statistics of rank 0. If that one died, those of the next rank
    # would be as good, but not the same.
    "norm": Case(
        features="norm,two",
        points="loss0,bucket0,reduced,optimizer1,commit,committed",
        spare=1,
        linger_s=0.15,
    ),
}


@dataclass(kw_only=True)
class Story:
    """What the ranks of one job wrote."""

    steps: list[list[dict[str, Any]]]
    """What counted of each step: a line of each rank, in their order."""
    pids: list[set[int]]
    """Of each generation."""
    ends: list[dict[str, Any]]
    began: dict[int, dict[str, list[float]]]
    """By how many steps were made when a generation began: the statistics that rank 0 had."""
    looks: list[dict[str, Any]]
    """What the optimizer of each rank was told of the abort flag in each step."""
    lookouts: list[dict[str, Any]]
    """The steps in which a rank looked at the flag when it was up."""
    said: str = ""
    """What the command said: which process ended, and why."""

    @classmethod
    def read(cls, folder: Path) -> "Story":
        lines: dict[int, dict[int, dict[int, dict[str, Any]]]] = {}
        pids: dict[int, set[int]] = {}
        ends, began, flags = [], {}, {"F": list[Any](), "L": list[Any]()}
        for path in sorted(folder.glob("gen-*/rank-*.out")):
            for line in path.read_text().splitlines():
                kind, _, rest = line.partition(" ")
                if kind == "T":
                    told = json.loads(rest)
                    by_generation = lines.setdefault(told["step"], {})
                    by_generation.setdefault(told["generation"], {})[told["rank"]] = told
                    pids.setdefault(told["generation"], set()).add(told["pid"])
                elif kind == "P":
                    ends.append(json.loads(rest))
                elif kind in flags:
                    flags[kind].append(json.loads(rest))
                elif kind == "G" and (told := json.loads(rest))["rank"] == 0:
                    began[told["step"]] = told["values"]
        assert sorted(lines) == list(range(len(lines)))
        steps = [_that_counted(lines[step]) for step in sorted(lines)]
        return cls(
            steps=steps,
            pids=[pids[each] for each in sorted(pids)],
            ends=ends,
            began=began,
            looks=flags["F"],
            lookouts=flags["L"],
        )


def _that_counted(attempts: Mapping[int, Mapping[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """A step may be tried in several generations; the last has it, with all ranks."""
    last = attempts[max(attempts)]
    told = [last[rank] for rank in sorted(last)]
    assert len(told) == told[0]["size"], f"not all ranks took part: {told}"
    return told


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def story(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Run the job until somebody has died at each point."""
    place = LocalRun(tmp_path_factory.mktemp("points") / "here", shares_server=True)
    place.folder.mkdir()
    call = place.call(
        "--job", "points", "--nproc-per-node", str(FULL), str(SCRIPT), "--full", str(FULL),
        "--points", case.points, "--features", case.features, "--folder", str(place.folder),
        "--spare", str(case.spare), "--linger-s", str(case.linger_s), "--after", str(case.after),
    )  # fmt: skip
    for number, point in enumerate(case.points.split(",")):
        note = place.folder / f"died-{number}"
        until(lambda n=note: n.exists() or call.process.poll() is not None, lambda: call.err)  # type: ignore[misc]
        assert note.exists(), f"ended before {point}: {call.err}"
        assert note.read_text() == point
    ended = call.wait()
    place.mark.wait_none_left()
    assert ended.code == 0, ended.err
    story = Story.read(place.runs / "points")
    story.said = ended.err
    samples = sum(len(set(each)) for step in story.steps for each in _batches(step))
    trained = rf"trained: {len(story.steps)} steps, .*\b{samples} samples, 0 repeated, 0 skipped"
    assert re.search(trained, ended.err), ended.err
    return story


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_survivors_keep_their_processes(case: Case, story: Story) -> None:
    """Each death costs one process, and is followed by a smaller world and a full one."""
    deaths = len(case.points.split(","))
    assert len(set().union(*story.pids)) == FULL + deaths, story.said
    for before, after in zip(story.pids, story.pids[1:], strict=False):
        assert len(before & after) >= min(len(before), len(after)) - 1


@pytest.mark.slow
def test_each_step_has_the_batch_of_an_undisturbed_run(case: Case, story: Story) -> None:
    """Each sample counts once in each pass, whatever the world's size, and in the same step."""
    alone = loader(case.features.split(","))
    found = [batch for step in story.steps for batch in _batches(step)]
    wanted: list[list[int]] = []
    while len(wanted) < len(found):
        wanted += [sorted(index.tolist()) for _, _, index in alone]
        loader_core_of(alone).commit()
    assert found == wanted[: len(found)]
    per_pass = len(alone)
    for start in range(0, len(found), per_pass):
        samples = [i for batch in found[start : start + per_pass] for i in batch]
        assert len(samples) == len(set(samples))


@pytest.mark.slow
def test_what_is_learned_is_what_an_undisturbed_run_learns(case: Case, story: Story) -> None:
    """Loss of each step; at the end parameters, what the optimizers, the schedule, a GradScaler
    keep, and the statistics of BatchNorm."""
    parts, losses = _do_again(case, story)
    for number, (step, wanted) in enumerate(zip(story.steps, losses, strict=True)):
        found = [told["losses"] for told in step]
        assert found == [pytest.approx(each, rel=REL, abs=1e-15) for each in wanted], number
    assert len(story.ends) == FULL
    for rank, end in enumerate(story.ends):
        assert end["step"] == len(story.steps)
        for name, value in parts.values().items():
            if "running" in name and rank:
                continue  # Each rank's own, of its share, until rank 0 hands out its own again.
            double = torch.tensor(value, dtype=torch.float64)
            is_close = _are_close({name: double}, end["values"], case.rel)
            assert is_close, f"{name} of rank {rank}"
            if "running" not in name:
                assert end["values"][name] == story.ends[0]["values"][name], name


@pytest.mark.slow
def test_steps_are_queued_and_left_out_behind_an_abort(case: Case, story: Story) -> None:
    """With the abort flag, that is: all but the first of a generation are. Where the others look
    at it when the news is there, their optimizers change nothing, and the step is done again.
    """
    begins: dict[int, int] = {}
    for look in story.looks:
        begun = begins.setdefault(look["generation"], look["step"])
        begins[look["generation"]] = min(begun, look["step"])
    for look in story.looks:
        number = look["step"] - begins[look["generation"]]
        if number == 0 or number >= FIRST_COMMITS:  # The end of an epoch is a commit as well.
            assert (look["flag"] is None) == (number == 0), look
    assert len(story.lookouts) == (FULL - 1) * case.points.split(",").count("look")
    for lookout in story.lookouts:
        assert {**lookout, "flag": 1.0} in story.looks
        (counted,) = {told["generation"] for told in story.steps[lookout["step"]]}
        assert counted > lookout["generation"]
    assert bool(story.looks) == ("flag" in case.features)


def _batches(step: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The samples of each global batch of a step, but for repeats that have no weight."""
    count = len(step[0]["shares"])
    shares = [[told["shares"][number] for told in step] for number in range(count)]
    return [sorted(i for weight, index in each if weight for i in index) for each in shares]


def _do_again(case: Case, story: Story) -> tuple[Parts, list[list[list[float]]]]:
    """Train in this process: all shares one after the other, as DDP would at once.

    The statistics go on as those of rank 0, unless another rank had counted the step when rank 0
    had not: then rank 0 has that one's when the next generation begins.
    """
    parts, samples = Parts(case.features.split(",")), dataset(case.features.split(","))
    buffers = dict(parts.model.named_buffers())
    losses = []
    for number, step in enumerate(story.steps):
        parts.clear()
        losses.append([[0.0] * parts.per_step for _ in step])
        for micro in range(parts.per_step):
            before = {name: value.clone() for name, value in buffers.items()}
            of_ranks = {}
            for told in step:
                for name, value in buffers.items():
                    value.copy_(before[name])  # As rank 0 has handed them out.
                weight, index = told["shares"][micro]
                x, y, _ = samples[index]
                out = parts.model(x)
                loss = parts.loss(out, y, weight)
                parts.backward(loss, number)
                losses[-1][told["rank"]][micro] = loss.item()
                of_ranks[told["rank"]] = {name: each.clone() for name, each in buffers.items()}
            kept = of_ranks[0]
            if micro == parts.per_step - 1 and (found := story.began.get(number + 1)):
                kept = next(each for each in of_ranks.values() if _are_close(each, found))
            for name, value in buffers.items():
                value.copy_(kept[name])
        for parameter in parts.model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(len(step))
        parts.apply(lambda _: None)
    return parts, losses


def _are_close(
    wanted: Mapping[str, torch.Tensor],
    found: Mapping[str, Sequence[float] | float],
    rel: float = REL,
) -> bool:
    return all(
        torch.tensor(found[name], dtype=value.dtype).allclose(
            value, rtol=rel, atol=1e-12 if rel else 0.0
        )
        for name, value in wanted.items()
    )
