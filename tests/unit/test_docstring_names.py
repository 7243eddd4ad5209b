"""What docstrings and comments name in backticks, or under "Raises:", exists.

A name is known if the tree defines it (a module, a class, a function, an attribute, a constant, a
word of its data), if the code of the same file uses it, or if Python itself has it. A name that is
only another file's local variable is not. The check cannot find a wrong name that the same file
uses for something else.
"""

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache

from tests.unit.test_house import NAMES, ROOT, tree_of

NAMES_OF_OTHERS = {
    # Attributes and functions of torch and its libraries.
    "all_reduce",
    "async_save",
    "barrier",
    "cat",
    "forward",
    "random_split",
    "randperm",
    "recv",
    "resize_",
    "set_num_threads",
    "unscale_",
    "WORK_OVERRIDE",
    # Kubernetes: fields of its objects, and a taint of its autoscaler.
    "DeletionCandidateOfClusterAutoscaler",
    "activeDeadlineSeconds",
    "managedFields",
    "resourceVersion",
    "nodeSelector",
    "scaleDown",
    "scaleUp",
    # Prometheus: labels that it sets, and a function of its language.
    "exported_job",
    "instance",
    "label_replace",
    "PromQL",
    # Messages of TensorBoard's event files.
    "HistogramProto",
    "SessionLog",
    "Summary",
    # Python, HTTP, JSON, Linux.
    "Bearer",
    "cmdline",
    "du",
    "fallocate",
    "meta_path",
    "null",
    "ps",
    # Packages that elasticd does without, as their docstrings say.
    "etcd3",
    "kubernetes",
    "prometheus_client",
}
"""Words of other programs. A name of our own never belongs here."""
PLACEHOLDERS = {"noun", "verb_past"}
"""Words that stand for any word of their kind."""

_QUOTED = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_FILE = re.compile(r"[\w/-]+\.py")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_RAISES = re.compile(r"^ *Raises:(.*(?:\n(?! *\n).*)*)", re.MULTILINE)
_EXCEPTIONS = re.compile(
    r"^ *((?:[A-Z][\w.]*|[a-z_]+\.\w+)(?:(?:, | or | and )[A-Z][\w.]*)*):(?: |$)"
)
_CAMEL_CASE = re.compile(r"(?<![.\w])[A-Z][a-z]+[A-Z]\w*")
_TARGETS = {
    ast.FunctionDef: "name",
    ast.ClassDef: "name",
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.keyword: "arg",
}


class _File:
    """One file: what it says, defines and uses."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        docs = {
            id(node.value): (node.lineno, node.value.value)
            for node in nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        self.docstrings = list(docs.values())
        self.comments = [
            (number, found[0])
            for number, line in enumerate(text.splitlines(), 1)
            if (found := _COMMENT.search(line))
        ]
        self.words = {
            node.value
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
        }
        self.uses = {name for node in nodes for name in _names(node)}
        self.defines = {name for node in nodes for name in _defined(node)}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.alias):
        yield from node.name.split(".")
        yield node.asname or ""
    elif field := _TARGETS.get(type(node)):
        yield getattr(node, field) or ""


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the names by which other files may know what a node defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    if isinstance(node, ast.Module | ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.Assign | ast.AnnAssign):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                for target in targets:
                    yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def _parts(name: str) -> tuple[str, ...]:
    """Return the dotted path of a file's module, by its parts."""
    path = name.removeprefix("agent/").removesuffix(".py").removesuffix("/__init__")
    return tuple(path.split("/"))


@cache
def _files() -> dict[str, _File]:
    return {name: _File((ROOT / name).read_text()) for name in NAMES}


@cache
def _known() -> frozenset[str]:
    known = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names}
    for name, file in _files().items():
        known |= {*_parts(name), *file.defines}
        known |= {word for word in file.words if word.isidentifier()}
    metrics = set(re.findall(r"\belasticd_\w+", (ROOT / "docs/metrics.md").read_text()))
    return frozenset(known | metrics | NAMES_OF_OTHERS | PLACEHOLDERS)


def unknown_names(file: _File) -> list[str]:
    """Return what a file's docstrings and comments have in backticks and nothing defines."""
    own = file.uses | {part for word in file.words for part in re.findall(r"\w+", word)}
    wrong = []
    for line, comment in file.docstrings + file.comments:
        for quoted in _QUOTED.findall(comment):
            if _FILE.fullmatch(quoted):
                is_known = any(f"/{name}".endswith(f"/{quoted}") for name in NAMES)
            elif _NAME.fullmatch(quoted):
                is_known = set(quoted.removesuffix("()").split(".")) <= own | _known()
            else:
                continue  # An expression, a command, a path.
            if not is_known:
                wrong.append(f"line {line}: {quoted}")
    return wrong


def unknown_exceptions(file: _File) -> list[str]:
    """Return what a file's docstrings say that is raised, and which is no class."""
    wrong = []
    for line, doc in file.docstrings:
        for section in _RAISES.findall(doc):
            said = set(_CAMEL_CASE.findall(section))
            for row in section.splitlines():
                if heads := _EXCEPTIONS.match(row):
                    said |= set(re.split(", | or | and ", heads[1]))
            for each in sorted(said):
                module, _, name = each.rpartition(".")
                if name not in _classes() and (module or name) not in file.uses:
                    wrong.append(f"line {line}: {each}")
    return wrong


@cache
def _classes() -> frozenset[str]:
    nodes = (node for name in NAMES for node in ast.walk(tree_of(name)))
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return frozenset(classes | {*dir(builtins)} | NAMES_OF_OTHERS)


def test_names_in_backticks_exist() -> None:
    found = {name: wrong for name, file in _files().items() if (wrong := unknown_names(file))}
    assert found == {}


def test_charter_of_a_room_names_what_is_in_the_room() -> None:
    """It may name what lies elsewhere by its whole path alone."""
    found = {}
    for name, file in _files().items():
        room = name.removesuffix("__init__.py")
        if room != name:
            here = [each for other, each in _files().items() if other.startswith(room)]
            inside = {name for each in here for name in each.defines | each.uses | each.words}
            modules = {part for other in NAMES if other.startswith(room) for part in _parts(other)}
            quoted = {word for _, text in file.docstrings for word in _QUOTED.findall(text)}
            names = {word for word in quoted if re.fullmatch(r"[A-Za-z_]\w*", word)}
            if wrong := names - inside - modules - NAMES_OF_OTHERS:
                found[name] = sorted(wrong)
    assert found == {}


def test_dotted_paths_lead_to_something() -> None:
    """`elasticd.goodput.late` is a module, or what one defines."""
    modules = {".".join(_parts(name)) for name in NAMES}
    paths = {
        (name, quoted)
        for name, file in _files().items()
        for _, text in file.docstrings + file.comments
        for quoted in _QUOTED.findall(text)
        if re.fullmatch(r"elasticd(?:_agent)?(?:\.\w+)+", quoted)
    }
    top = _files()["elasticd/__init__.py"]
    public = {f"elasticd.{word}" for word in top.words | top.uses}
    wrong = {
        (name, path)
        for name, path in paths
        if path not in modules | public and path.rpartition(".")[0] not in modules - {"elasticd"}
    }
    assert wrong == set()


def test_exceptions_that_docstrings_tell_exist() -> None:
    found = {name: wrong for name, file in _files().items() if (wrong := unknown_exceptions(file))}
    assert found == {}


def test_words_of_the_lists_are_needed() -> None:
    """A word that nobody names any more goes from the list."""
    said = {
        part
        for file in _files().values()
        for _, comment in file.docstrings + file.comments
        for part in re.split(r"\W+", comment)
    }
    assert (NAMES_OF_OTHERS | PLACEHOLDERS) - said == set()


def test_check_finds_names_that_are_gone() -> None:
    file = _File(GONE_NAMES)
    assert unknown_names(file) == ["line 1: has_curve", "line 1: gone_room.py", "line 5: has_curve"]


def test_check_finds_exceptions_that_are_gone() -> None:
    file = _File(GONE_EXCEPTIONS)
    found = ["line 5: AlsoGone", "line 5: NotPassed", "line 15: Missing"]
    assert unknown_exceptions(file) == found


GONE_NAMES = '''"""The rows where `has_curve` says so; see `gone_room.py` and `Remnant`.

`_reconcile` of another file is known, as is `own`, and `pytest --help` is no name.
"""
own = 1  # As `has_curve` has it.
'''
GONE_EXCEPTIONS = '''import subprocess


def f():
    """Do it.

    Raises:
        NotPassed, OSError: it came to nothing.
        ElasticdError: what others raise, and AlsoGone on other ranks.
        subprocess.TimeoutExpired: it took too long.
    """


def g():
    """Raises: Missing: there is none."""
'''
