"""A worker names what it has loaded from installed packages, once it trains, and once only."""

import gc
import os
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from elasticd.channel.pool import ModulesLoaded
from elasticd_agent.pool.zygote import module_report
from elasticd_agent.pool.zygote.module_report import (
    ALONE_S,
    GROUP_S,
    ModuleReport,
    installed_modules,
    installed_roots,
)

ROOT = "/v/lib/site-packages/"


def module(name: str, origin: str | None) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, origin=origin)
    return made


def test_only_modules_of_installed_packages_are_named_in_their_order() -> None:
    """Not the script's own, Python's own, those of before, nor other names of one."""
    modules: dict[str, Any] = {
        "torch": module("torch", f"{ROOT}torch/__init__.py"),
        "__main__": module("__main__", f"{ROOT}a/train.py"),
        "zoo": module("zoo", f"{ROOT}zoo/__init__.py"),
        "mine": module("mine", "/home/u/mine.py"),
        "json": module("json", "/v/lib/json/__init__.py"),
        "sys": module("sys", "built-in"),
        "zoo.ape": module("zoo.ape", f"{ROOT}zoo/ape.py"),
        "alias": module("zoo.ape", f"{ROOT}zoo/ape.py"),
        "bare": types.ModuleType("bare"),
        "odd": None,
    }
    assert installed_modules(modules, {"torch"}, (ROOT,)) == ["zoo", "zoo.ape"]
    assert installed_modules(modules, (), ()) == []


def test_roots_are_the_folders_into_which_packages_are_installed() -> None:
    """Whoever installs to edit has the files elsewhere: they are the script's own."""
    path = ["/code", "", "/usr/lib/python3", "/v/lib/site-packages", "/usr/lib/dist-packages"]
    assert installed_roots(path) == (ROOT, "/usr/lib/dist-packages/")


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.has_group = 0.0, False
        self.said: list[ModulesLoaded] = []
        monkeypatch.setattr(module_report, "_has_group", lambda: self.has_group)
        self.report = ModuleReport("w", self.said.append, clock=lambda: self.now_s)

    def collect_garbage(self, at_s: float) -> int:
        self.now_s = at_s
        gc.collect(0)
        return len(self.said)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_it_is_told_once_the_group_stands_for_a_while(scene: Scene) -> None:
    """By the next collection of garbage, which it does not look at any more then."""
    count = len(gc.callbacks)
    scene.report.watch()
    assert scene.collect_garbage(ALONE_S - 1) == 0
    scene.has_group = True
    assert scene.collect_garbage(ALONE_S - 0.5) == 0
    assert scene.collect_garbage(ALONE_S - 0.5 + GROUP_S) == 1
    assert len(gc.callbacks) == count
    assert scene.collect_garbage(1000.0) == 1


@pytest.mark.parametrize("own", [None, 5000])
def test_garbage_is_collected_as_often_as_before_once_it_is_told(
    scene: Scene, own: int | None
) -> None:
    """Python 3.13 collects too seldom to look; a script that sets a number keeps its own."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(2000, 10, 10)
        scene.report.watch()
        assert gc.get_threshold() == (700, 10, 10)
        if own is not None:
            gc.set_threshold(own)
        set_by_script = gc.get_threshold()
        assert scene.collect_garbage(ALONE_S + 1) == 1
        assert gc.get_threshold() == (set_by_script if own is not None else (2000, 10, 10))
    finally:
        gc.set_threshold(*before)


def test_script_without_a_group_is_asked_later(scene: Scene) -> None:
    """It may train alone."""
    scene.report.watch()
    assert scene.collect_garbage(ALONE_S - 0.5) == 0
    assert scene.collect_garbage(ALONE_S + 0.5) == 1


def test_process_that_the_script_forks_tells_nothing(scene: Scene) -> None:
    """It has the pipe, but is no worker."""
    scene.report.watch()
    pid = os.fork()
    if pid == 0:
        said = scene.collect_garbage(ALONE_S + 1)
        os._exit(said)
    assert os.waitpid(pid, 0)[1] == 0
    assert scene.collect_garbage(ALONE_S + 1) == 1


def test_variables_that_changed_are_told_with_their_values(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is gone has none."""
    monkeypatch.setenv("ELASTICD_A", "1")
    report = ModuleReport("w", scene.said.append)
    monkeypatch.setenv("ELASTICD_A", "2")
    monkeypatch.setenv("ELASTICD_B", "3")
    assert report.collect().variables == {"ELASTICD_A": "2", "ELASTICD_B": "3"}
    monkeypatch.delenv("ELASTICD_A")
    assert report.collect().variables["ELASTICD_A"] == ""


def test_package_of_a_script_started_by_module_is_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-m zoo.train` of an installed package: its files may be edited, and it is `__main__`."""
    report = ModuleReport("w", scene.said.append, script_package="zoo")
    monkeypatch.setattr(module_report, "installed_roots", lambda _: (ROOT,))
    monkeypatch.setitem(sys.modules, "zoo.ape", module("zoo.ape", f"{ROOT}zoo/ape.py"))
    monkeypatch.setitem(sys.modules, "bar", module("bar", f"{ROOT}bar.py"))
    assert report.collect().modules == ("bar",)
