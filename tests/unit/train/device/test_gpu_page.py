"""docs/gpu.md names each call to CUDA that the sources make, and tests that are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "gpu.md").read_text()


def calls_of(source: str) -> set[str]:
    """The names of `torch.cuda` and of CUDA's runtime that a source uses."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if re.fullmatch(r"torch\.cuda\.\w+", name):
                found.add(name)
            elif re.match(r"cuda[A-Z]", node.attr):
                found.add(node.attr)
    return found


def test_page_names_each_call_of_the_sources_and_no_other() -> None:
    """In code, so that a name is not taken for one by chance."""
    sources = [path for room in ("elasticd", "agent") for path in (ROOT / room).rglob("*.py")]
    made = set().union(*(calls_of(path.read_text()) for path in sources))
    section = PAGE.partition("### Each call")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(torch\.cuda\.\w+|cuda[A-Z]\w+)`", section))
    assert named == made
    tests = re.findall(r"`(unit/[^`:]+)(?:::(\w+))?`", section)
    assert len(tests) > len(section.splitlines()) // 2
    for path, name in tests:
        assert f"def {name}" in (ROOT / "tests" / path).read_text(), (path, name)


def test_call_in_any_form_is_found() -> None:
    """A call that nobody lists would be one that nobody tries."""
    assert calls_of("x = torch.cuda.Event\nruntime.cudaHostRegister(1)") == {
        "torch.cuda.Event",
        "cudaHostRegister",
    }
    assert calls_of("cuda.on(device)\n'torch.cuda.Event'") == set()
