"""A script in the warm pool sees what it would see under plain `python -u`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd.channel.pool import Exited, PoolFailed, Raised, Started, StartFailed
from elasticd.records.job import EntryKind
from tests.fixtures.pool import (
    PATIENCE_S,
    PoolDriver,
    either_pool,
    fork_server,
    forked_pool,
    pool,
    running_pool,
)

__all__ = ["either_pool", "fork_server", "forked_pool", "pool"]

PROBE = '''
"""A docstring."""
import json, os, random, signal, subprocess, sys, threading
def signals():
    lines = open("/proc/self/status").read().splitlines()
    names = ("SigBlk", "SigIgn", "SigCgt", "ShdPnd")
    sets = [line.split() for line in lines if line.startswith(names)]
    # Signals 32 and 33 are glibc's own: its posix_spawn leaves them ignored in what it starts.
    return [(name, int(mask, 16) & ~(3 << 31)) for name, mask in sets]
def stream(s):
    raw = s.buffer
    return [repr(s), s.line_buffering, s.write_through, s.errors, repr(raw), s.fileno(), s.newlines]
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(),
    "name": __name__, "file": __file__, "cached": __cached__, "package": __package__,
    "doc": __doc__, "loader": repr(type(__loader__)), "loader_name": __loader__.name,
    "spec": repr(__spec__).split(" object at")[0], "globals": sorted(globals()),
    "main_is_us": sys.modules["__main__"].__dict__ is globals(),
    "flags": repr(sys.flags), "thread": threading.current_thread().name,
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "env": {k: v for k, v in os.environ.items() if k != "ELASTICD_WORKER"},
    "getenv": subprocess.getoutput("echo $PROBE_VALUE $RANK"),
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__],
    "stdin": os.readlink("/proc/self/fd/0"), "first_fd": open(os.devnull).fileno(),
    "leads_session": os.getsid(0) == os.getpid(), "umask": os.umask(0o22),
    "excepthook": sys.excepthook is sys.__excepthook__,
}
import multiprocessing, tempfile, torch
facts |= {
    "process": multiprocessing.current_process().name, "parent": multiprocessing.parent_process(),
    "origin": multiprocessing.process.ORIGINAL_DIR, "tmp": tempfile.gettempdir(),
    # Libraries have their threads by now, and glibc the signal that threads need.
    "signals": signals(), "threads": len(os.listdir("/proc/self/task")),
    "torch_threads": torch.get_num_threads(), "cuda": torch.cuda.is_initialized(),
}
print(json.dumps(facts, sort_keys=True))
'''


def plainly(*command: str, folder: Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run under the interpreter itself; returns code, out and err."""
    done = subprocess.run(
        [sys.executable, "-u", *command],
        cwd=folder,
        env=dict(os.environ) if env is None else env,  # Not what C code put beside it (readline).
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def warmly(
    pool: PoolDriver, entry: str, *args: str, folder: Path, **more: object
) -> tuple[int, str, str]:
    """Run in the pool; returns code, out and err."""
    end = pool.run(entry, *args, folder=folder, **more)
    out, err = (folder / f"{end.worker}.out"), (folder / f"{end.worker}.err")
    return end.code, out.read_text(), err.read_text()


@pytest.mark.parametrize("is_absolute", [True, False])
def test_script_sees_what_it_would_see_under_python(
    either_pool: PoolDriver, tmp_path: Path, is_absolute: bool
) -> None:
    """Arguments, path, `__main__`, streams, signals, environment, threads, seeds: all equal."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "probe.py").write_text(PROBE)
    entry = str(tmp_path / "code" / "probe.py") if is_absolute else "code/probe.py"
    env = {**os.environ, "PROBE_VALUE": "a b", "RANK": "3", "PYTHONPATH": f"/x/y:{tmp_path}"}
    env.pop("OMP_NUM_THREADS", None)
    _, plain, _ = plainly(entry, "--lr", "1", folder=tmp_path, env=env)
    _, warm, err = warmly(either_pool, entry, "--lr", "1", folder=tmp_path, env=env)
    assert warm, err
    assert json.loads(warm) == json.loads(plain)


def test_module_sees_what_it_would_see_under_python(
    either_pool: PoolDriver, tmp_path: Path
) -> None:
    """`-m` gives a spec, a package for relative imports and the folder on the path."""
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("value = 7\n")
    (package / "go.py").write_text(
        PROBE.replace("import json", "from . import part\nassert part.value == 7\nimport json", 1)
    )
    _, plain, err = plainly("-m", "thing.go", "x", folder=tmp_path)
    assert plain, err
    _, warm, err = warmly(either_pool, "thing.go", "x", folder=tmp_path, kind=EntryKind.MODULE)
    assert warm, err
    assert json.loads(warm) == json.loads(plain)


ENDINGS = {
    "nothing": "print('done')",
    "exit none": "import sys; sys.exit()",
    "exit 7": "import sys; sys.exit(7)",
    "exit text": "import sys; sys.exit('so sorry')",
    "os._exit": "import os; print('x'); os._exit(9)",
    "exception": "def f():\n    raise ValueError('too hot')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('a') from e",
    "group": "raise ExceptionGroup('all', [ValueError(1), TypeError(2)])",
    "syntax error": "x = = 1",
    "bad import": "import not_there_at_all",
    "interrupt": "raise KeyboardInterrupt",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "segfault": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "own hook": (
        "import sys, traceback\n"
        "def hook(k, v, t): print('hook', k, v, traceback.extract_tb(t), sys.last_value)\n"
        "sys.excepthook = hook\nraise ValueError(3)"
    ),
    "bad hook": "import sys\ndef hook(*a): 1 / 0\nsys.excepthook = hook\nraise ValueError(3)",
    "hook that exits": "import sys\nsys.excepthook = lambda *a: sys.exit(5)\nraise ValueError(3)",
    "atexit": "import atexit; atexit.register(print, 'last'); raise ValueError(1)",
    "thread": (
        "import threading, time\n"
        "said = threading.Event()\n"
        "late = lambda: (said.wait(), time.sleep(0.1), print('late'))\n"
        "threading.Thread(target=late).start()\n"
        "print('main ends')\n"
        "said.set()"
    ),
    "unflushed file": "f = open('/dev/stdout', 'a'); f.write('kept'); print('main ends')",
    "closed stdout": "import sys; sys.stdout.close(); raise SystemExit(3)",
}


@pytest.mark.parametrize("name", list(ENDINGS))
def test_script_ends_as_under_python(pool: PoolDriver, tmp_path: Path, name: str) -> None:
    """Exit code or signal, output and traceback are equal, byte for byte."""
    script = tmp_path / "script.py"
    script.write_text(ENDINGS[name])
    assert warmly(pool, "script.py", folder=tmp_path) == plainly("script.py", folder=tmp_path)


@pytest.mark.parametrize("name", ["nothing", "exit 7", "exception", "interrupt", "syntax error"])
def test_module_ends_as_under_python(pool: PoolDriver, tmp_path: Path, name: str) -> None:
    """The traceback of `-m` shows runpy's frames, as Python's does, and none of ours."""
    (tmp_path / "some.py").write_text(ENDINGS[name])
    warm = warmly(pool, "some", folder=tmp_path, kind=EntryKind.MODULE)
    assert warm == plainly("-m", "some", folder=tmp_path)


@pytest.mark.parametrize("entry", ["absent.py", "folder", "."])
def test_what_cannot_run_says_so_as_python_does(
    pool: PoolDriver, tmp_path: Path, entry: str
) -> None:
    """A missing script, a folder with and one without a `__main__.py`."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("import sys; print(sys.argv, sys.path[0])")
    assert warmly(pool, entry, folder=tmp_path) == plainly(entry, folder=tmp_path)


LIVES = """
import inspect, multiprocessing, pickle, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return index * index
def twice(x): return 2 * x
if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(Squares())).__class__ is Squares
    assert "return 2 * x" in inspect.getsource(twice)
    assert (Path(__file__).parent / "data.txt").read_text() == "data"
    for method in ("fork", "spawn"):
        loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=method)
        print(torch.cat(list(loader)).tolist())
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        print(workers.map(twice, [1, 2]))
"""


def test_multiprocessing_pickle_and_inspect_work(pool: PoolDriver, tmp_path: Path) -> None:
    """DataLoader processes by fork and by spawn find the classes of `__main__`."""
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "lives.py").write_text(LIVES)
    code, out, err = warmly(pool, "lives.py", folder=tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines() == 2 * ["[0, 1, 4, 9, 16, 25, 36, 49]"] + ["[2, 4]"]


def test_workers_draw_different_random_numbers(pool: PoolDriver, tmp_path: Path) -> None:
    """The generators of Python, numpy and torch start from the system's randomness, as ever."""
    (tmp_path / "draw.py").write_text(
        "import random, numpy, multiprocessing, torch\n"
        "print(random.random(), numpy.random.rand(), torch.rand(1).item(),\n"
        "      multiprocessing.current_process().authkey.hex())"
    )
    draws = [warmly(pool, "draw.py", folder=tmp_path)[1].split() for _ in range(2)]
    assert [a == b for a, b in zip(*draws, strict=True)] == [False, False, False, False]


def test_threads_are_set_by_call(pool: PoolDriver, tmp_path: Path) -> None:
    """The pool has one thread; a worker as many as asked for, else as its environment says."""
    (tmp_path / "t.py").write_text("import torch; print(torch.get_num_threads())")
    assert warmly(pool, "t.py", folder=tmp_path, threads=3)[1] == "3\n"
    env = {**os.environ, "OMP_NUM_THREADS": "5"}
    assert warmly(pool, "t.py", folder=tmp_path, env=env)[1] == "5\n"


def test_exception_is_told_before_the_end(pool: PoolDriver, tmp_path: Path) -> None:
    """Raised comes first, names the user's line and leaves a file in `@record`'s form."""
    last = "def last():\n    while not os.path.exists('heard'): time.sleep(0.01)\n"
    (tmp_path / "r.py").write_text(
        f"import json, atexit, os, time\n{last}atexit.register(last)\njson.loads('{{')\n"
    )
    worker = pool.start("r.py", folder=tmp_path)
    raised = pool.wait_for(Raised, worker)
    assert not any(isinstance(message, Exited) for message in pool.said)
    (tmp_path / "heard").touch()
    assert pool.wait_for(Exited, worker).code == 1
    assert raised.exception.startswith("JSONDecodeError: Expecting property name")
    assert raised.where == f"{tmp_path}/r.py:5"
    assert raised.traceback == (tmp_path / f"{worker}.err").read_text()
    assert not raised.has_group
    record = json.loads((tmp_path / f"{worker}.json").read_text())["message"]
    assert record["message"] == raised.exception
    assert record["extraInfo"]["py_callstack"] == raised.traceback
    assert record["extraInfo"]["timestamp"].isdigit()


def test_error_file_of_record_is_left_alone(pool: PoolDriver, tmp_path: Path) -> None:
    """What torch's decorator wrote stands."""
    (tmp_path / "r.py").write_text(
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('x')\nmain()\n"
    )
    env = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(tmp_path / "rec.json")}
    pool.start("r.py", folder=tmp_path, env=env, name="rec")
    assert pool.wait_for(Exited, "rec").code == 1
    assert "in wrapper" in (tmp_path / "rec.json").read_text()  # A frame that only torch saw.
    assert pool.wait_for(Raised, "rec").exception == "ValueError: x"


def test_command_runs_without_python(pool: PoolDriver, tmp_path: Path) -> None:
    """`--no-python`: any program, with the default signals, its code as it is."""
    args = ("-c", "echo $RANK; grep SigIgn /proc/self/status; exit 4")
    env = {**os.environ, "RANK": "2"}
    code, out, _ = warmly(pool, "sh", *args, folder=tmp_path, env=env, kind=EntryKind.COMMAND)
    assert code == 4
    rank, name, ignored = out.split()
    assert (rank, name, int(ignored, 16) & ~(3 << 31)) == ("2", "SigIgn:", 0)


@pytest.mark.parametrize(
    ("entry", "cwd", "word"), [("no-such-program", None, "no-such-program"), ("sh", "/no", "/no")]
)
def test_worker_that_cannot_start_is_refused(
    pool: PoolDriver, tmp_path: Path, entry: str, cwd: str | None, word: str
) -> None:
    """StartFailed says why, and no Exited follows."""
    where = Path(cwd) if cwd else None
    worker = pool.start(entry, folder=tmp_path, kind=EntryKind.COMMAND, cwd=where)
    assert word in pool.wait_for(StartFailed, worker).message
    pool.run("-c", folder=tmp_path)
    assert not any(isinstance(m, Exited | Started) and m.worker == worker for m in pool.said)


def test_preload_with_a_thread_makes_the_pool_spawn(tmp_path: Path) -> None:
    """A fork would copy its locks without their holder; the spawned worker is as exact."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "bad.py").write_text(ENDINGS["exception"])
    driver = PoolDriver(preload="threaded", cwd=tmp_path)
    with driver.until_closed() as ready:
        assert not ready.can_fork
        _, plain, _ = plainly("probe.py", "x", folder=tmp_path)
        _, warm, err = warmly(driver, "probe.py", "x", folder=tmp_path)
        assert warm, err
        facts, plain_facts = json.loads(warm), json.loads(plain)
        assert facts == plain_facts
        assert warmly(driver, "bad.py", folder=tmp_path) == plainly("bad.py", folder=tmp_path)
        assert driver.wait_for(Raised).where == f"{tmp_path}/bad.py:2"


def test_what_a_library_counts_is_freed_at_the_end_as_under_python(tmp_path: Path) -> None:
    """nanobind's objects that the pool imported, cycles among them, are collected at the end."""
    (tmp_path / "cyclic.py").write_text(
        "import os\n"
        "class Node:\n"
        "    __module__ = 'nanobind'\n"
        "    def __init__(self):\n"
        "        self.itself = self\n"
        "    def __del__(self, write=os.write):\n"
        "        write(1, b'freed')\n"
        "node = Node()\n"
    )
    (tmp_path / "train.py").write_text("import cyclic\n")
    driver = PoolDriver(preload="cyclic", cwd=tmp_path)
    with driver.until_closed() as ready:
        assert ready.can_fork
        assert plainly("train.py", folder=tmp_path) == (0, "freed", "")
        assert warmly(driver, "train.py", folder=tmp_path) == (0, "freed", "")


@pytest.mark.parametrize(
    ("name", "source", "word"),
    [
        ("gone", None, "ModuleNotFoundError"),
        ("broken", "1 / 0", "ZeroDivisionError"),
        ("quits", "import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_preload_that_fails_is_told_in_a_sentence(
    tmp_path: Path, name: str, source: str | None, word: str
) -> None:
    """PoolFailed names the module and what to do; the pool ends."""
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source)
    driver = PoolDriver(preload=name, cwd=tmp_path, is_patient=True)
    message = driver.wait_for(PoolFailed).message
    assert repr(name) in message and word in message and "--preload" in message
    assert driver.process.wait(PATIENCE_S) == 1


def test_missing_torch_is_told_in_a_sentence(tmp_path: Path) -> None:
    """PoolFailed says what to install, and for which interpreter."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    driver = PoolDriver(env={**os.environ, "PYTHONPATH": str(tmp_path)})
    message = driver.wait_for(PoolFailed).message
    assert "PyTorch is not installed" in message and sys.executable in message


def test_preloaded_module_is_there_already(tmp_path: Path) -> None:
    """A worker does not run it again."""
    (tmp_path / "once.py").write_text("import os\npid = os.getpid()\n")
    (tmp_path / "s.py").write_text("import os, once; print(once.pid != os.getpid())")
    with running_pool(preload="once", cwd=tmp_path) as driver:
        assert warmly(driver, "s.py", folder=tmp_path)[1] == "True\n"
