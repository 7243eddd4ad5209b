"""A whole run: site, schedule, history, verdict, report; nothing is left after it."""

import json
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Any

from chaos.error import ChaosError, WrongInput
from chaos.history.lineage import trace
from chaos.history.records import History, Took
from chaos.history.recovery import commits
from chaos.plan.fault import Place
from chaos.plan.scenario import Scenario, parse
from chaos.plan.schedule import draw
from chaos.process import adopt_orphans
from chaos.processes.site import ProcessSite
from chaos.runner import RANKS_FILE, RUNNER_FILE, Runner, reference
from chaos.site import Site
from chaos.verdict.account import judged_account
from chaos.verdict.invariants import judge
from chaos.verdict.report import to_json
from chaos.verdict.saved import SAVED_FILE, examine, judged
from chaos.why.goodput import judged_goodput
from chaos.why.rule import judged_causes
from chaos.why.watch import WHY_FILE

__all__ = ["rejudge", "run"]

PLAN_FILE = "plan.json"
KEPT = ("runs", RUNNER_FILE, PLAN_FILE, SAVED_FILE, WHY_FILE, "records", "reference")
"""What is kept of a run's folder, beside the agents' logs. etcd's data is of no use to anybody."""


def run(
    scenario: Scenario,
    *,
    seed: int,
    say: Callable[[str], None],
    keep: Path | None = None,
    keep_broken: Path | None = None,
) -> dict[str, Any]:
    """Run a scenario and return its report; the raw history goes to `keep`.

    `keep_broken` gets it only if a rule was broken.

    Raises:
        ChaosError: the run could not be done; what there is of a history goes to `keep` even so.
    """
    with _workplace() as folder:
        plan = {"seed": seed, "scenario": _table(scenario), "name": scenario.name}
        (folder / PLAN_FILE).write_text(json.dumps(plan))
        site = _make_site(folder, scenario)
        try:
            Runner(site, draw(scenario, seed), seed=seed, say=say).run()
            _make_reference(site, say)
        except ChaosError:
            if keep is not None:
                _keep(folder, keep)
            raise
        finally:
            site.close()
        examine(folder)
        report = rejudge(folder)
        target = keep or (keep_broken if not report["holds"] else None)
        if target is not None:
            _keep(folder, target)
            report["kept"] = str(target)
        return report


def rejudge(folder: Path) -> dict[str, Any]:
    """Compute the report from a kept history.

    Raises:
        WrongInput: that is not the folder of a run.
    """
    try:
        plan = json.loads((folder / PLAN_FILE).read_text())
        scenario = parse(plan["scenario"], name=plan["name"])
        history = _read(folder)
    except (OSError, ValueError, KeyError) as exc:
        raise WrongInput(f"{folder} does not hold the history of a run: {exc}.") from exc
    path = folder / "reference" / RANKS_FILE
    losses = _losses(path) if path.exists() else None
    judgement = judge(history, scenario.verdict, losses)
    lineage, want = trace(history), scenario.verdict
    found, slots = commits(lineage.rounds), scenario.site.workers
    told = (
        *judged(folder),
        *judged_account(folder, lineage, found, slots, want.account_within),
        *judged_causes(history, found, want.named_share, want.named_within_s),
        *judged_goodput(folder / WHY_FILE, lineage, found, want),
    )
    judgement = replace(judgement, findings=(*judgement.findings, *told))
    return to_json(scenario, history, judgement, seed=plan["seed"], machine=_machine())


def _make_site(folder: Path, scenario: Scenario) -> Site:
    if scenario.site.place is Place.PROCESSES:
        return ProcessSite(folder, scenario)
    from chaos.pods.site import PodSite

    return PodSite(folder, scenario, os.environ.get("KUBECONFIG", ""))


def _make_reference(site: Site, say: Callable[[str], None]) -> None:
    if site.scenario.verdict.parity <= 0:
        return
    with (site.records / RANKS_FILE).open() as lines:
        newest = max((took.step for took in History.read(lines).took), default=0)
    if newest:
        say(f"the undisturbed run, {newest} steps")
        reference(site, newest)


def _read(folder: Path) -> History:
    def lines() -> Iterator[str]:
        for path in (folder / RUNNER_FILE, folder / "records" / RANKS_FILE):
            if path.exists():
                with path.open(errors="replace") as file:
                    yield from file

    return History.read(lines())


def _losses(path: Path) -> dict[int, float]:
    with path.open() as lines:
        took: list[Took] = History.read(lines).took
    return {one.step: one.loss / len(one.samples) for one in took if one.samples}


def _table(scenario: Scenario) -> dict[str, Any]:
    """Write a scenario as TOML would give it."""
    return {
        "about": scenario.about,
        "site": asdict(scenario.site),
        "job": asdict(scenario.job),
        "fault": [asdict(entry) for entry in scenario.faults],
        "random": asdict(scenario.random),
        "verdict": asdict(scenario.verdict),
    }


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"


def _keep(folder: Path, target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in (*(folder / name for name in KEPT), *folder.glob("*.log")):
            if path.is_dir():
                shutil.copytree(path, target / path.name, dirs_exist_ok=True)
            elif path.exists():
                shutil.copy2(path, target / path.name)
    except OSError as exc:
        raise ChaosError(f"The history cannot be kept in {target}: {exc.strerror}.") from exc


@contextmanager
def _workplace() -> Iterator[Path]:
    """Give a folder; at the end, however it comes, it is gone."""
    adopt_orphans()
    # Short: the path of a Unix socket has 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield folder
    finally:
        asked = signal.signal(signal.SIGINT, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGINT, asked)
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def began_at() -> str:
    """Name a moment, for a folder."""
    return time.strftime("%m%d-%H%M%S")
