"""Run a script or module as `python -u SCRIPT` or `python -u -m MODULE` would, in this process.

A module goes through the very function that `python -m` calls. A script goes through the same steps
that CPython's main program takes in C (pymain_run_file, PyRun_SimpleFile). Errors leave through the
top of the stack, so that the interpreter itself prints, flushes, waits for threads and picks the
exit code; only our own frames are cut off first.

Rejected: runpy.run_path() and run_name="__main__": it puts another `sys.argv[0]` and `__main__`
back when the script's main part is over, while its threads and atexit handlers still run.
"""

import builtins
import importlib.machinery
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any

__all__ = ["python_path", "run", "search_path"]

_PACKAGES = ("site-packages", "dist-packages")


def run(
    entry: str,
    args: tuple[str, ...],
    *,
    is_module: bool,
    on_raised: Callable[[BaseException], None],
) -> None:
    """Run the script as `__main__`; call `on_raised` at once when an exception leaves it.

    SystemExit with a code other than 0 is reported too, and goes on unchanged.
    """
    sys.modules["__main__"] = _new_main()
    try:
        if is_module:
            _run_module(entry, args)
        else:
            _run_file(entry, args)
    except SystemExit as exc:
        if exc.code not in (None, 0):
            on_raised(exc)
        raise
    except BaseException as exc:
        script_part = _without_us(exc.__traceback__)
        exc.__traceback__ = script_part
        on_raised(exc)
        _hide_our_frames(script_part)
        raise


def python_path(env: Mapping[str, str], cwd: str) -> list[str]:
    """Read PYTHONPATH as Python does at its start."""
    value = env.get("PYTHONPATH", "")
    entries = value.split(os.pathsep) if value else []
    return [os.path.normpath(os.path.join(cwd, entry)) for entry in entries]


def search_path(now: Sequence[str], pools: Sequence[str], workers: Sequence[str]) -> list[str]:
    """Exchange the PYTHONPATH that the pool started with for the worker's own.

    A folder that a `.pth` file names as well stays, at the place where Python would have put it:
    the pool's own start left the folder out there, since the pool's PYTHONPATH had it already.
    """
    rest = list(now)
    for entry in pools:
        if entry in rest:
            rest.remove(entry)
    taken = set(pools) - set(workers)
    for place in [each for each in rest if taken and each.endswith(_PACKAGES)]:
        at = rest.index(place)
        for entry in _named_by_pth(place):
            if entry in taken and entry not in rest and os.path.exists(entry):
                rest.insert(at + 1, entry)
            at = max(at, rest.index(entry)) if entry in rest else at
    return list(dict.fromkeys([*workers, *rest]))


def _named_by_pth(place: str) -> Iterator[str]:
    """Yield the folders that the `.pth` files of a folder of packages name, in Python's order."""
    with suppress(OSError):
        names = [name for name in os.listdir(place) if name.endswith(".pth") and name[0] != "."]
        for name in sorted(names):
            with (
                suppress(OSError, ValueError),
                open(f"{place}/{name}", encoding="utf-8-sig") as file,
            ):
                for line in file.read().splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield os.path.abspath(os.path.join(place, line.rstrip()))


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = builtins
    return main


def _run_module(name: str, args: tuple[str, ...]) -> None:
    sys.argv = ["-m", *args]
    sys.orig_argv = [sys.executable, "-u", "-m", name, *args]
    _prepend(os.getcwd())
    _run_as_python_does(name, alter_argv=True)


def _run_file(entry: str, args: tuple[str, ...]) -> None:
    sys.argv = [entry, *args]
    sys.orig_argv = [sys.executable, "-u", entry, *args]
    path = entry if os.path.isabs(entry) else f"{os.getcwd()}/{entry}"
    if pkgutil.get_importer(path) is not None:  # A folder or a zip file with a __main__.py.
        sys.path.insert(0, os.getcwd() if entry == "." else path)
        _run_as_python_does("__main__", alter_argv=False)
        return
    _prepend(os.path.dirname(os.path.realpath(entry)))
    loader: Any
    if entry.endswith(".pyc"):
        loader = importlib.machinery.SourcelessFileLoader("__main__", path)
        code = loader.get_code("__main__")
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        code = compile(_read_source(path), path, "exec", dont_inherit=True)
    main = sys.modules["__main__"]
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    exec(code, main.__dict__)  # noqa: S102 - running the user's script is what we are for


def _run_as_python_does(name: str, *, alter_argv: bool) -> None:
    run_as_main: Callable[..., object] = vars(runpy)["_run_module_as_main"]
    run_as_main(name, alter_argv)


def _prepend(folder: str) -> None:
    if not (sys.flags.safe_path or os.environ.get("PYTHONSAFEPATH")):
        sys.path.insert(0, folder)


def _read_source(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as exc:
        reason = f"[Errno {exc.errno}] {exc.strerror}"
        sys.stderr.write(f"{sys.executable}: can't open file {path!r}: {reason}\n")
        sys.exit(2)


def _without_us(part: TracebackType | None) -> TracebackType | None:
    while part is not None and part.tb_frame.f_code.co_filename == __file__:
        part = part.tb_next
    return part


def _hide_our_frames(script_part: TracebackType | None) -> None:
    """Give the excepthook, the user's or Python's, the traceback that `python` would show."""
    users_hook = sys.excepthook

    def hook(kind: type[BaseException], exc: BaseException, _: TracebackType | None) -> None:
        sys.excepthook = users_hook
        sys.last_traceback = script_part
        exc.__traceback__ = script_part
        if getattr(exc, "is_plain", False) is True:
            sys.stderr.write(f"elasticd: {exc}\n")
            return
        try:
            users_hook(kind, exc, script_part)
        except SystemExit:
            raise
        except BaseException as error:  # In the interpreter's words, less the line of this hook.
            error.__traceback__ = _without_us(error.__traceback__)
            sys.stderr.write("Error in sys.excepthook:\n")
            sys.__excepthook__(type(error), error, error.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            sys.__excepthook__(kind, exc, script_part)

    sys.excepthook = hook
