"""The pictures of the guide are what the shipped rules do today."""

import html
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elasticd.autoscale.gallery.__main__ import main
from elasticd.autoscale.gallery.scene import SCENES, Scene
from elasticd.autoscale.gallery.trace_picture import story

FOLDER = Path(__file__).parents[4] / "docs" / "images" / "autoscale"
AGAIN = "run: python -m elasticd.autoscale.gallery docs/images/autoscale"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_picture_tells_what_the_rules_come_to_today(scene: Scene) -> None:
    """The size at the end, the rules that had a word, and whether anything was taken back."""
    kept = html.unescape((FOLDER / f"{scene.name}.svg").read_text())
    found = re.search(r"<desc>(.*)</desc>", kept)
    assert found is not None and _gist(found[1]) == _gist(story(scene.trace())), AGAIN
    assert scene.title in kept, AGAIN


def _gist(told: str) -> tuple[str, frozenset[str], bool]:
    """How many tries it takes to get there may change with each tuning of a rule."""
    decisions = [each.split() for each in told.split("; ")]
    rules = frozenset(rule for _, rule, _ in decisions)
    return decisions[-1][0].partition(">")[2], rules, "taken_back" in told


def test_pictures_are_whole_and_stand_in_the_guide() -> None:
    """Every one of them; no script, nothing from elsewhere."""
    guide = (FOLDER.parents[1] / "guides" / "autoscaling.md").read_text()
    assert {path.stem for path in FOLDER.glob("*.svg")} == {scene.name for scene in SCENES}
    for scene in SCENES:
        text = (FOLDER / f"{scene.name}.svg").read_text()
        ElementTree.fromstring(text)
        assert "<script" not in text and "href" not in text
        assert f"(../images/autoscale/{scene.name}.svg)" in guide
    assert main([]) == 2


def test_job_without_data_is_small_for_as_long() -> None:
    """And as large as before when it goes on."""
    (idle,) = [scene for scene in SCENES if scene.name == "idle"]
    last = idle.trace().decisions[-2:]
    assert [each.rule.value for each in last] == ["idle", "idle"]
    assert last[0].to_nodes == 1 and last[1].to_nodes == last[0].from_nodes
