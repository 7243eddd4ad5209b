"""Texts of scripts, as Go's parser of YAML takes them: kubectl has the API server's."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from elasticd.kube.api.document import encoded
from elasticd.kube.resource.plain_text import REPLACEMENT, TEXT_LIMIT, plain_text

TEXTS = (
    "\U0001f525 on fire",
    "h\u00e9 \u6f22 \U0010ffff",
    "\ud83d half",
    "".join(map(chr, range(0xA0))),
    "\ufeff\ufffe\uffff\u2028\u0085",
    '"\\ud83d" \\ \\\\',
    "'{}[]: # & * ! | > %",
)


def test_text_of_any_kind_is_yaml_for_go_once_it_is_plain(tmp_path: Path) -> None:
    """The API server reads as YAML what is applied; a refused status is never written."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "install kubectl"
    texts = {f"t{number}": plain_text(text) for number, text in enumerate(TEXTS)}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": texts,
    }
    # A comment before it makes it no JSON.
    (tmp_path / "a.yaml").write_bytes(b"# x\n" + encoded(body))
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\n")
    found = subprocess.run(
        [kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert yaml.safe_load(found.stdout)["data"] == texts


def test_plain_text_stays_as_it_is() -> None:
    """A status that was written compares equal to what is read."""
    for text in TEXTS:
        once = plain_text(text)
        assert plain_text(once) == once
    assert plain_text("rank 3 failed \U0001f525: h\u00e9\t\u6f22\nnext") == (
        "rank 3 failed \U0001f525: h\u00e9\t\u6f22\nnext"
    )
    assert plain_text("\ud83d\x00") == 2 * REPLACEMENT


@pytest.mark.parametrize("length", [TEXT_LIMIT, TEXT_LIMIT + 1, 10 * TEXT_LIMIT])
def test_long_text_is_cut(length: int) -> None:
    found = plain_text("x" * length)
    assert len(found) == TEXT_LIMIT and found.endswith("x" if length == TEXT_LIMIT else "x ...")
