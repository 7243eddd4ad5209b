"""A package that breaks what a fork relies on is named, with the reason, and the others serve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRIAL = """
import json, os, sys
from elasticd_agent.pool.zygote.import_trial import Unsound, import_packages
from elasticd_agent.pool.zygote.learned_set import LearnedSet
given = json.loads(sys.argv[1])
learned = LearnedSet(modules=tuple(given["modules"]), variables=tuple(given["variables"]))
before = dict(os.environ)
try:
    loaded = import_packages(
        learned,
        differing=frozenset(given["differing"]),
        set_by_script=given["set_by_script"],
        is_careful=given["is_careful"],
    )
except Unsound as exc:
    answer = {"package": exc.package, "why": exc.why}
else:
    names = [name for name in learned.modules if name in sys.modules]
    answer = {"reads": sorted(loaded.reads), "set": dict(loaded.environment), "loaded": names}
assert dict(os.environ) == before, "the environment is not as it was"
print(json.dumps(answer), flush=True)
os._exit(0)
"""

FAULTS = {
    "thread": (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "it starts a thread",
    ),
    "listening socket": (
        "import socket; s = socket.create_server(('127.0.0.1', 0))",
        "it opens a socket, a pipe, an event queue or a GPU",
    ),
    "event loop": (
        "import asyncio; loop = asyncio.new_event_loop()",
        "it opens a socket, a pipe, an event queue or a GPU",
    ),
    "pipe": ("import os; ends = os.pipe()", "it opens a socket, a pipe, an event queue or a GPU"),
    "process": (
        (
            "import subprocess, sys\n"
            "null = subprocess.DEVNULL\n"
            "command = [sys.executable, '-c', 'input()']\n"
            "p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null)"
        ),
        "it starts a process",
    ),
    "cwd": ("import os; os.chdir('/')", "it changes the working folder"),
    "umask": ("import os; os.umask(0o7)", "it changes the umask"),
    "signal": (
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
        "it handles a signal",
    ),
    "blocked signal": (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})",
        "it blocks a signal",
    ),
    "limit": (
        (
            "import resource\n"
            "soft, hard = resource.getrlimit(resource.RLIMIT_CORE)\n"
            "resource.setrlimit(resource.RLIMIT_CORE, (0 if soft else 1, hard))"
        ),
        "it changes a limit of the process",
    ),
    "locale": (
        "import locale; locale.setlocale(locale.LC_CTYPE, 'POSIX')",
        "it sets the locale",
    ),
    "argv": ("import sys; sys.argv.append('x')", "it changes sys.argv"),
    "hook": (
        "import sys; sys.excepthook = lambda *_: None",
        "it replaces a hook of the interpreter",
    ),
    "stream": ("import sys; sys.stderr = open('/dev/null', 'w')", "it replaces a standard stream"),
    "rank": ("import os; rank = os.environ.get('RANK', '0')", "it reads RANK as it is imported"),
    "rank by getenv": ("import os; rank = os.getenv('RANK')", "it reads RANK as it is imported"),
    "own variable": (
        "import os; home = os.environ.get('HOUSE')",
        "it reads HOUSE as it is imported",
    ),
    "fork": (
        "import os, time; os.register_at_fork(after_in_child=lambda: time.sleep(1000))",
        "a process forked after it does not answer",
    ),
    # What torch does in a process that has counted its GPUs, which has no context for that.
    "counted GPUs": (
        (
            "import os, sys, types\n"
            "class Ones:\n"
            "    def __matmul__(self, other): return self\n"
            "    def sum(self): return 1.0\n"
            "torch = types.ModuleType('torch')\n"
            "torch.set_num_threads = torch.ones = lambda *_: Ones()\n"
            "torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)\n"
            "torch.cuda._is_in_bad_fork = lambda: is_forked\n"
            "is_forked = False\n"
            "def forked():\n"
            "    global is_forked\n"
            "    is_forked = True\n"
            "os.register_at_fork(after_in_child=forked)\n"
            "sys.modules['torch'] = torch"
        ),
        "a process forked after it does not answer",
    ),
}


def trial(folder: Path, *modules: str, **more: object) -> dict[str, object]:
    """Import packages of this folder as a zygote does, in a process of its own."""
    given = {
        "modules": modules,
        "variables": ["HOUSE"],
        "differing": ["RANK"],
        "set_by_script": {"HOUSE": "here"},
        "is_careful": False,
        **more,
    }
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, json.dumps(given)],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def package(folder: Path, name: str, source: str) -> None:
    (folder / f"{name}.py").write_text(source + "\n")


@pytest.mark.parametrize("fault", list(FAULTS))
def test_package_that_breaks_a_fact_is_named_with_the_reason(tmp_path: Path, fault: str) -> None:
    """The one before it, and the one that imports it, are told apart from it."""
    source, why = FAULTS[fault]
    package(tmp_path, "good", "value = 1")
    package(tmp_path, "bad", source)
    answer = trial(tmp_path, "good", "bad", is_careful=fault in ("fork", "counted GPUs"))
    assert answer == {"package": "bad", "why": why}


def test_package_that_imports_the_one_at_fault_is_at_fault_itself(tmp_path: Path) -> None:
    """Nothing is kept from being imported: no package takes another way than in a worker."""
    package(tmp_path, "bad", FAULTS["thread"][0])
    package(tmp_path, "user", "try:\n    import bad\nexcept ImportError:\n    bad = None")
    assert trial(tmp_path, "user", "bad")["package"] == "user"


def test_what_cannot_be_imported_here_is_left_to_the_worker(tmp_path: Path) -> None:
    """A worker may know how: it has the script's folder, and what the script prepared."""
    package(tmp_path, "broken", "raise RuntimeError('no')")
    package(tmp_path, "leaves", "raise SystemExit(3)")
    package(tmp_path, "good", "value = 1")
    assert trial(tmp_path, "gone", "broken", "leaves", "good")["loaded"] == ["good"]


def test_variable_that_a_package_sets_is_kept_for_the_workers(tmp_path: Path) -> None:
    """It is no fault to set one, nor to read what it set itself."""
    package(tmp_path, "sets", "import os\nos.environ['HOUSE'] = 'here'\nos.environ['HOUSE']")
    answer = trial(tmp_path, "sets")
    assert answer["set"] == {"HOUSE": "here"}


def test_variable_that_the_script_sets_otherwise_is_the_scripts(tmp_path: Path) -> None:
    """The package would have seen the script's value, and not what it sets where there is none."""
    source = "import os\nos.environ.setdefault('HOUSE', 'elsewhere')\nos.environ['HOUSE']"
    package(tmp_path, "sets", source)
    assert trial(tmp_path, "sets")["why"] == "it reads HOUSE as it is imported"


def test_whoever_goes_through_the_whole_environment_depends_on_none_of_it(tmp_path: Path) -> None:
    """What is read beside that counts, also by the same package."""
    package(
        tmp_path,
        "walks",
        "import os\n"
        "def walk():\n"
        "    dict(os.environ), list(os.environ.items()), {**os.environ}\n"
        "    return [os.environ[key] for key in os.environ]\n"
        "walk()\n"
        "home = os.environ.get('HOME')\n",
    )
    assert trial(tmp_path, "walks")["reads"] == ["HOME"]
