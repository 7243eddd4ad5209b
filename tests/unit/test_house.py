"""The rules of the house: how long files are, how full rooms are, and what names may not be.

What imports what is import-linter's (`make check`), with the floors in pyproject.toml.
"""

import ast
import re
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.short_files import SHORT_FILES

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(
    path
    for top in ("elasticd", "agent/elasticd_agent", "chaos")
    for path in (ROOT / top).rglob("*.py")
)
NAMES = [str(path.relative_to(ROOT)) for path in PRODUCT]

MOST_LINES = 400
LONGER: dict[str, int] = {}
"""Files that have outgrown the rule, with the lines at which they may stand: none may grow."""

FEWEST_LINES = 40
"""A shorter file needs a reason, in `short_files.py`."""

MEDIAN_LINES = 150

MOST_LINES_OF_A_FUNCTION = 60
LONGER_FUNCTIONS: dict[str, int] = {}
"""Functions that are longer, with the lines at which they may stand: none may grow."""

MOST_METHODS_OF_A_PORT = 6

READS_ENVIRONMENT = re.compile(r"elasticd/cli/|agent/elasticd_agent/pool/|chaos/|.*/__main__\.py$")
"""The command line, and what starts processes or is one."""
ENTRY_POINTS_OF_SCRIPTS = {
    "elasticd/dcp/reader.py",  # A script may give its options `env:NAME`.
    "elasticd/dcp/writer.py",
    "elasticd/script/progress.py",
    "elasticd/train/device/device.py",
    "elasticd/train/run.py",
    "elasticd/train/save_and_load.py",
}
"""The homes of public names that a script calls: the process is the script's own, and its
environment is all that the agent has told it."""
READS_ENVIRONMENT_TOO = {
    "elasticd/store/etcd/channel.py",  # gRPC has no other way to be told, and reads it on import.
}
"""Others that do: no file may be added."""

NEVER_WRITTEN = {"PREEMPTED", "BELOW_MIN", "ISOLATED", "OTHER"}
"""Words that are only read: three are reserved, the last is what a newer version wrote."""

MOST_FILES = 13
"""Twelve modules of a room, and its charter."""

FEWEST_MODULES = 3
SMALLER_ROOMS = {
    "elasticd/keeper/wire": (
        "Messages, and the connection that carries them with open files, are all that a worker and "
        "its keeper must agree on; the room above has eleven modules, and may have twelve."
    ),
}
"""Rooms with fewer modules, and why: two at most. See docs/adr/0034-rooms.md."""

NO_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|manager|misc|told|said|gone)$")
"""Leftover words, and participles that nobody searches for."""

NO_FUNCTION_NAMES = re.compile(r"_*(told|said|heard|gone)")
"""Whole names of functions: they leave out who says what to whom."""

NO_CLASS_NAMES = re.compile(
    r"(Attached|Accounts|Examiner|Meeting|Talk|Told|Said|Known|Heard|Kept|Keep|Keeping|Wanted|"
    r"Parting|Passage|Errand|Landing|Link|Change|Standing)"
)
"""Words that say neither what a class is nor where the field has it: a store, a group, a socket."""
NAMED_SO_ALL_THE_SAME = {
    "agent/elasticd_agent/output_monitor/silence.py:Heard",  # An event: a rank wrote something.
    "agent/elasticd_agent/pool/link.py:Link",
    "chaos/history/records.py:Told",  # Old histories are read by these names.
    "elasticd/channel/worker.py:Attached",  # A message: its name is on the wire.
    "elasticd/keeper/mirror/protocol.py:Wanted",  # Keepers of other versions know it by this name.
}

PRIVATE_OF_OTHERS = {
    "A namedtuple's own method, which has the underscore so that no field can have the name": {
        "_replace"
    },
    "What Python documents, or has no other way to": {
        "_current_frames",
        "_data",  # Of os.environ: reads of it are not to be seen.
        "_exit",
        "_getframe",
        "_resource_tracker",
    },
    "What torch offers under no other name": {
        "_C",
        "_FrameAction",
        "_FrameExecStrategy",
        "_abort_process_group",
        "_broadcast_coalesced",
        "_buffers",
        "_create_work_from_future",
        "_current_graph_task_id",
        "_distributed_c10d",
        "_dynamo",
        "_foreach_copy_",
        "_foreach_norm",
        "_get_default_group",
        "_get_default_store",
        "_get_sequence_number_for_group",
        "_global_optimizer_post_hooks",
        "_global_optimizer_pre_hooks",
        "_local_tensor",
        "_metadata",
        "_new_process_group_helper",
        "_optimizer_step_post_hooks",
        "_optimizer_step_pre_hooks",
        "_parameters",
        "_set_grad_enabled",
        "_shutdown_workers",
        "_state_dict_hooks",
        "_threads",
        "_timeout",
        "_version",
        "_worker_pids_set",
        "_workers",
        "_world",
    },
    "What fsspec asks a file system of another package for": {"_pipe_file", "_strip_protocol"},
}
"""Private names of others that the product uses all the same, by the reason."""


@pytest.mark.parametrize("name", NAMES)
def test_file_is_no_longer_than_the_rule(name: str) -> None:
    lines = len((ROOT / name).read_text().splitlines())
    assert lines <= LONGER.get(name, MOST_LINES), f"{name} has {lines} lines"


def test_list_of_longer_files_has_no_others() -> None:
    assert {n for n in LONGER if len((ROOT / n).read_text().splitlines()) <= MOST_LINES} == set()


def test_short_files_are_those_that_have_a_reason() -> None:
    short = {
        name
        for name in NAMES
        if len((ROOT / name).read_text().splitlines()) < FEWEST_LINES and not is_charter(name)
    }
    assert short == SHORT_FILES.keys()
    no_sentence = {
        name for name, why in SHORT_FILES.items() if not re.fullmatch(r"[A-Z`].+\.", why)
    }
    assert no_sentence == set()


def is_charter(name: str) -> bool:
    """Return whether it is an `__init__.py` that only documents its room and re-exports names."""
    return name.endswith("__init__.py") and all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign | ast.AnnAssign) and "__all__" in ast.unparse(node))
        for node in tree_of(name).body
    )


def test_no_room_is_crowded() -> None:
    full = Counter(str(Path(name).parent) for name in NAMES)
    assert {room: n for room, n in full.items() if n > MOST_FILES} == {}


def test_no_room_is_nearly_empty() -> None:
    modules = Counter(str(Path(name).parent) for name in NAMES if not name.endswith("__init__.py"))
    assert {room for room, n in modules.items() if n < FEWEST_MODULES} == SMALLER_ROOMS.keys()
    assert len(SMALLER_ROOMS) <= 2


def test_each_room_says_what_it_is_for() -> None:
    for room in {path.parent for path in PRODUCT} - {ROOT / "chaos" / "jobs"}:
        charter = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
        assert charter, f"{room.relative_to(ROOT)} has no charter in its __init__.py"


def test_each_module_says_what_it_is_for() -> None:
    assert [n for n in NAMES if not ast.get_docstring(ast.parse((ROOT / n).read_text()))] == []


NO_SENTENCE = re.compile(
    r"(By|For|From|How|In|Not|Of|On|To|True|What|When|Where|Whether|Who|With|Without) "
)
"""A docstring that begins so does not say what the function does: "Return whether ..." does."""


def test_docstring_of_a_public_function_says_what_it_does() -> None:
    found = [
        f"{name}:{node.lineno} {first.splitlines()[0]}"
        for name, node in nodes_of(ast.FunctionDef)
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and NO_SENTENCE.match(first := ast.get_docstring(node) or "")
    ]
    assert found == []


SAYS_WHAT_IT_RAISES = re.compile(r"\bRaises:|\b[Rr]aises? [A-Z]\w+")
"""`Raises: CallError: ...`, as a block or a line, "raises CallError if ..." or "Raise CallError
unless ..."."""
NEEDS_NO_WORD = {"AssertionError", "NotImplementedError"}
"""They say that a line cannot be reached, or that nobody may call it."""


def test_public_function_that_raises_says_so() -> None:
    """A command of click says it to the user, in the sentence of the error. A method without a
    docstring has that of the port that it implements, if the port says it.
    """
    ports = {
        method.name
        for _, node in nodes_of(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and SAYS_WHAT_IT_RAISES.search(ast.get_docstring(method) or "")
    }
    silent = [
        f"{name}:{function.lineno} {function.name}"
        for name in NAMES
        for function in public_functions(tree_of(name))
        if raised_by(function)
        and not SAYS_WHAT_IT_RAISES.search(doc := ast.get_docstring(function) or "")
        and not any("command(" in ast.unparse(each) for each in function.decorator_list)
        and not (not doc and function.name in ports)
    ]
    assert silent == []


def public_functions(scope: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node)
        elif isinstance(node, ast.FunctionDef) and re.match(r"__init__$|[^_]", node.name):
            yield node


def raised_by(node: ast.AST) -> set[str]:
    """Return the errors that a function raises by itself, without those that it passes on."""
    found = set()
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue  # Called by somebody else, perhaps much later.
        if isinstance(each, ast.Raise) and each.exc is not None:
            error = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
            found.add(ast.unparse(error))
        found |= raised_by(each)
    return found - NEEDS_NO_WORD


def test_no_file_has_a_leftover_word_for_a_name() -> None:
    assert [name for name in NAMES if NO_NAMES.search(Path(name).stem)] == []


def test_no_function_is_named_by_a_participle_of_talk() -> None:
    """What it does, or what it returns, is what somebody would search for. Locals are not looked
    at, nor the functions within a function.
    """
    named = {
        f"{name}:{function.name}"
        for name in NAMES
        for scope in ast.walk(tree_of(name))
        if isinstance(scope, ast.Module | ast.ClassDef)
        for function in scope.body
        if isinstance(function, ast.FunctionDef) and NO_FUNCTION_NAMES.fullmatch(function.name)
    }
    assert named == set()


def test_no_class_has_a_name_that_nobody_can_place() -> None:
    found = {
        f"{name}:{node.name}"
        for name, node in nodes_of(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and NO_CLASS_NAMES.fullmatch(node.name)
    }
    assert found == NAMED_SO_ALL_THE_SAME


MAY_IMPORT_TORCH = {
    "elasticd.cli",  # `elasticd checkpoint export`, in the function that needs it
    "elasticd.dcp",
    "elasticd.net",  # reverse_dns, which the pool and the workers call
    "elasticd.tensors",
    "elasticd.train",
    "elasticd_agent.pool",
}


def test_contract_about_torch_names_every_package_but_those_that_need_it() -> None:
    """A room that is new must be named, too, or be one of those."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    named = next(set(c["source_modules"]) for c in contracts if "never import torch" in c["name"])
    modules = {
        f"{top.name}.{path.stem}"
        for top in (ROOT / "elasticd", ROOT / "agent" / "elasticd_agent")
        for path in (*top.glob("*.py"), *(init.parent for init in top.glob("*/__init__.py")))
        if not path.stem.startswith("__")
    }
    assert modules - MAY_IMPORT_TORCH == named


def test_no_private_attribute_of_another_module_is_used() -> None:
    """A module may use what its own classes define: in a copy, in a comparison, in a face."""
    others: dict[str, list[str]] = {}
    for name in NAMES:
        own = set(private_names_of(tree_of(name)))
        for node in ast.walk(tree_of(name)):
            if (
                isinstance(node, ast.Attribute)
                and re.match(r"_[^_]", node.attr)
                and ast.unparse(node.value) not in ("self", "cls", "super()")
                and node.attr not in own
            ):
                others.setdefault(node.attr, []).append(f"{name}:{node.lineno}")
    allowed = set().union(*PRIVATE_OF_OTHERS.values())
    assert {attr: where for attr, where in others.items() if attr not in allowed} == {}
    assert allowed - others.keys() == set(), "nobody uses these any more"


def private_names_of(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that the classes of a module give their objects."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.ClassDef(body=body):
                for each in body:
                    if isinstance(each, ast.Assign):
                        yield from (ast.unparse(target) for target in each.targets)


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def nodes_of(kind: type) -> Iterator[tuple[str, ast.AST]]:
    for name in NAMES:
        yield from ((name, node) for node in ast.walk(tree_of(name)) if isinstance(node, kind))


def test_files_are_short_as_a_rule() -> None:
    lengths = [len((ROOT / name).read_text().splitlines()) for name in NAMES]
    assert statistics.median(lengths) <= MEDIAN_LINES


def test_functions_are_no_longer_than_the_rule() -> None:
    longer = {
        f"{name}:{node.name}": lines
        for name, node in nodes_of(ast.FunctionDef)
        if isinstance(node, ast.FunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    }
    assert {key: n for key, n in longer.items() if n > LONGER_FUNCTIONS.get(key, 0)} == {}
    assert LONGER_FUNCTIONS.keys() - longer.keys() == set(), "these are within the rule by now"


def test_ports_have_no_more_methods_than_the_rule() -> None:
    wider = {}
    for name, node in nodes_of(ast.ClassDef):
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
            methods = sum(isinstance(each, ast.FunctionDef) for each in node.body)
            if methods > MOST_METHODS_OF_A_PORT:
                wider[f"{name}:{node.name}"] = methods
    assert wider == {}


def test_environment_is_read_where_a_process_begins() -> None:
    """All else is given its settings, so that a test can give others."""
    readers = {
        name
        for name, node in nodes_of(ast.Attribute)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("os.environ", "os.getenv")
        and not READS_ENVIRONMENT.match(name)
    }
    assert readers == READS_ENVIRONMENT_TOO | ENTRY_POINTS_OF_SCRIPTS


def test_entry_points_of_scripts_are_homes_of_public_names() -> None:
    """Nothing that a script does not import itself may stand in that list."""
    homes = {
        f"elasticd/{home.replace('.', '/')}.py"
        for name in ("elasticd/__init__.py", "elasticd/checkpoint/__init__.py")
        for node in tree_of(name).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES"
        for home in ast.literal_eval(node.value).values()
    }
    assert homes >= ENTRY_POINTS_OF_SCRIPTS


@pytest.mark.parametrize("words", ["Reason", "Phase"])
def test_each_word_of_a_record_is_written_by_somebody(words: str) -> None:
    records = tree_of("elasticd/records/reason.py")
    enum = next(n for n in records.body if isinstance(n, ast.ClassDef) and n.name == words)
    members = {ast.unparse(n.targets[0]) for n in enum.body if isinstance(n, ast.Assign)}
    writers = re.compile(r"elasticd/(rendezvous|control|kube)/|agent/")
    table = "elasticd/rendezvous/next_world/exclusion.py"
    used = {
        node.attr
        for name, node in nodes_of(ast.Attribute)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == words
        and writers.match(name)
        and name != table
    }
    assert members - used - NEVER_WRITTEN == set()


@pytest.mark.parametrize("module", ["event", "effect"])
def test_each_event_and_effect_is_made_by_somebody(module: str) -> None:
    classes = {
        node.name
        for node in tree_of(f"elasticd/rendezvous/{module}.py").body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    made = {
        ast.unparse(node.func).rpartition(".")[2]
        for _, node in nodes_of(ast.Call)
        if isinstance(node, ast.Call)
    }
    assert classes - made == set()


def test_each_dependency_is_imported() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {re.split(r"[^\w-]", each)[0] for each in settings["project"]["dependencies"]}
    modules = {"grpcio": "grpc", "protobuf": "google"}
    imported = {
        alias.name.split(".")[0]
        for _, node in nodes_of(ast.Import)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0]
        for _, node in nodes_of(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
    }
    assert {each for each in packages if modules.get(each, each) not in imported} == set()
