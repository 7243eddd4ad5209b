"""What turns bytes of somebody else into code is found by `make check`, or has a reason."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = {
    "import pickle\npickle.loads(b'')\n": {"TID251", "S301"},
    "import cloudpickle\n": {"TID251"},
    "import marshal\nmarshal.loads(b'')\n": {"TID251", "S302"},
    "eval('1')\n": {"S307"},
    "exec('1')\n": {"S102"},
    "import yaml\nyaml.load('', Loader=yaml.Loader)\n": {"S506"},
    "import torch\ntorch.load('x')\n": {"TID251"},
    "from torch import load\nload('x')\n": {"TID251"},
    "import torch.distributed as dist\ndist.broadcast_object_list([])\n": {"TID251"},
    "import numpy as np\nnp.load('x', allow_pickle=True)\n": {"TID251"},
    "import subprocess\nsubprocess.run(f'ls {x}', shell=True)\n": {"S602"},
    "import os\nos.system(f'ls {x}')\n": {"S605"},
    "import tempfile\ntempfile.mktemp()\n": {"S306"},
    "import ssl\nssl._create_unverified_context()\n": {"S323"},
    "import hashlib\nhashlib.md5(b'')\n": {"S324"},
    "import xml.etree.ElementTree as e\ne.parse('x')\n": {"S314"},
    "open('/tmp/x', 'w')\n": {"S108"},
    "import tarfile\ntarfile.open('x').extractall()\n": {"S202"},
}
FOLDERS = ("elasticd", "agent/elasticd_agent")


def found(text: str, file: str) -> set[str]:
    ruff = Path(sys.executable).parent / "ruff"
    command = [str(ruff), "check", "--output-format=json", "--stdin-filename", file, "-"]
    done = subprocess.run(command, cwd=ROOT, input=text, text=True, stdout=subprocess.PIPE)
    return {each["code"] for each in json.loads(done.stdout)}


@pytest.mark.parametrize(("text", "codes"), SNIPPETS.items(), ids=list(SNIPPETS))
def test_call_that_could_run_code_is_found(text: str, codes: set[str]) -> None:
    """In both packages."""
    for folder in FOLDERS:
        assert codes <= found(text, f"{folder}/something.py")


def test_exception_has_a_reason_beside_it() -> None:
    """On its line, or on the one above it."""
    exception = re.compile(r"#\s*noqa: *((?:S\d+|TID251)[^#]*)(.*)$")
    bare = []
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            lines = ["", *path.read_text().splitlines()]
            for number, line in enumerate(lines):
                here = exception.search(line)
                if here is None or "S311" in here[1]:  # Chance for pauses and ports, not secrets.
                    continue
                said = re.sub(r"(S\d+|TID251|SIM\d+|,|\s)", "", here[1]) + here[2]
                if not said and not lines[number - 1].strip().startswith("#"):
                    bare.append(f"{path.name}:{number}: {line.strip()}")
    assert bare == []
