"""The page is one small file that asks nobody else and runs nothing but itself."""

import base64
import hashlib
import re

from elasticd.dashboard.page import page
from elasticd.records.reason import Reason

PAGE_LIMIT_BYTES = 150_000


def test_policy_lets_the_one_script_and_the_one_style_run() -> None:
    """By their hashes: a script that a traceback contains has another one."""
    found = page()
    (script,) = re.findall(rb"<script>(.*?)</script>", found.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in found.policy
    assert "default-src 'none'" in found.policy and "unsafe" not in found.policy


def test_page_makes_no_markup_of_what_it_is_told() -> None:
    """Nothing but text nodes; no address of anybody else."""
    text = page().body.decode()
    assert len(text.encode()) <= PAGE_LIMIT_BYTES
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text, way
    assert not re.search(r"<[^>]*\son[a-z]+=", text), "a handler in markup"
    assert set(re.findall(r"https?://[^\s'\"]+", text)) == {"http://www.w3.org/2000/svg"}


def test_page_has_no_rule_of_its_own_for_what_was_a_fault() -> None:
    """It is told: a newer reason would else have the sign of an older rule."""
    text = page().body.decode()
    assert "change.is_fault" in text
    known = [reason for reason in Reason if f'"{reason.value}"' in text]
    assert known == []


def test_address_that_somebody_typed_is_read_in_one_place() -> None:
    """Which bears a percent sign that begins nothing."""
    text = page().body.decode()
    assert text.count("location.hash") == 1
    assert "try { return decodeURIComponent(location.hash" in text
