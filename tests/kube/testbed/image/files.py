"""What stands in the testbed's image: a Python with torch and the project, from this machine.

The interpreter stands at its own path, as its binaries were built for that; the packages stand in a
virtual environment, /opt/elasticd. Of the packages only those come along that the project and torch
ask for, with the shared libraries that any of it needs, a shell, and etcd.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from elasticd.store.private_etcd.etcd_program import find_etcd
from tests.kube.testbed.image.archive import Member

__all__ = ["ENVIRONMENT", "HOME", "base_files", "base_key", "pause_files", "project_files"]

HOME = PurePosixPath("/opt/elasticd")
ENVIRONMENT = {
    "PATH": f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "PYTHONUNBUFFERED": "1",
}

_PROJECT = Path(__file__).parents[4]
_ROOTS = ("elasticd", "torch", "numpy", "kubernetes")
_PROGRAMS = (
    *(
        "sh",
        "bash",
        "env",
        "ls",
        "cat",
        "head",
        "tail",
        "sleep",
        "mkdir",
        "rm",
        "cp",
        "mv",
        "touch",
    ),
    *("ln", "chmod", "id", "df", "stat", "wc", "grep", "sed", "ps", "mount", "ip", "hostname"),
)
_UNUSED = re.compile(
    r"(^|/)(include|test|tests|idlelib|ensurepip|tkinter|turtledemo|lib2to3|site-packages)(/|$)"
    r"|\.(a|h|hpp|cuh|pyi)$|^torch/(test|share)/|^torch/bin/(?!torch_shm_manager$)"
)
_NEEDED_TESTS = re.compile(r"^(numpy|torch)/(_core/tests|testing)/")
_LIBRARY = re.compile(r"(/\S+) \(0x")
_SHARED = re.compile(r"\.so(\.\d+)*$")

_PASSWD = "root:x:0:0:root:/root:/bin/sh\nelasticd:x:1000:1000::/tmp:/bin/sh\n"


def base_key() -> str:
    """Return what the base layer depends on, in words: another one needs another layer."""
    return "\n".join(
        [sys.version, sys.base_prefix, *(f"{d.name} {d.version}" for d in _distributions())]
    )


def base_files() -> Iterator[Member]:
    """Yield all but the project itself, about a gigabyte."""
    files = dict(_interpreter()) | dict(_packages()) | dict(_programs())
    yield from _skeleton()
    yield from _tree(files | _libraries(files))


def pause_files(program: Path) -> Iterator[Member]:
    """Yield the one file of a sandbox's image."""
    yield from _tree({PurePosixPath("/pause"): program})


def project_files() -> Iterator[Member]:
    """Yield the project, with its bytecode where the machine has it, and the command elasticd."""
    site = _site()
    files: dict[PurePosixPath, Path] = {}
    for source, target in (
        (_PROJECT / "elasticd", site / "elasticd"),
        (_PROJECT / "agent" / "elasticd_agent", site / "elasticd_agent"),
        (_PROJECT / "chaos", site / "chaos"),
        (_PROJECT / "docs" / "examples", HOME / "examples"),
    ):
        files |= {target / path.relative_to(source): path for path in _files_below(source)}
    about = importlib.metadata.distribution("elasticd")
    for file in about.files or ():
        if ".dist-info/" in str(file) and file.name in ("METADATA", "entry_points.txt", "WHEEL"):
            files[site / str(file)] = Path(str(about.locate_file(file)))
    yield from _tree(files)


def _interpreter() -> Iterator[tuple[PurePosixPath, Path]]:
    program = Path(os.path.realpath(sys.executable))
    yield PurePosixPath(program), program
    library = Path(sysconfig.get_path("stdlib"))
    for path in _files_below(library):
        if not _UNUSED.search(str(path.relative_to(library))):
            yield PurePosixPath(path), path


def _packages() -> Iterator[tuple[PurePosixPath, Path]]:
    site = _site()
    for distribution in _distributions():
        if distribution.name == "elasticd":
            continue
        for file in distribution.files or ():
            name = str(file)
            path = Path(str(distribution.locate_file(file)))
            is_needed = _NEEDED_TESTS.search(name) or not _UNUSED.search(name)
            if is_needed and not name.startswith("..") and path.is_file():
                yield site / name, path


def _programs() -> Iterator[tuple[PurePosixPath, Path]]:
    for name in _PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/usr/sbin")
        if found is not None:
            yield PurePosixPath("/usr/bin") / name, Path(os.path.realpath(found))
    yield PurePosixPath("/usr/local/bin/etcd"), find_etcd()


def _libraries(files: dict[PurePosixPath, Path]) -> dict[PurePosixPath, Path]:
    """Return the machine's libraries that the files need and do not bring themselves."""
    binaries = [
        str(path)
        for target, path in files.items()
        if _SHARED.search(target.name) or target.parent.name == "bin"
    ]
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    there = {str(path) for path in files.values()}
    found = {name for name in _LIBRARY.findall(done.stdout) if os.path.realpath(name) not in there}
    ours = (f"{sysconfig.get_path('platlib')}/", f"{sys.prefix}/")
    # By the name under which it is asked for; /lib is a link to /usr/lib in the image too.
    return {
        PurePosixPath(name if name.startswith(("/usr/", "/root", "/opt")) else f"/usr{name}"): Path(
            os.path.realpath(name)
        )
        for name in sorted(found)
        if not name.startswith(ours)
    }


def _distributions() -> list[importlib.metadata.Distribution]:
    """Return the project, torch and all that they need, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in _ROOTS]
    while waiting:
        name, extra = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if (key, extra) in seen:
            continue
        seen.add((key, extra))
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in found[key].requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(need.name, ""), *((need.name, each) for each in need.extras)]
    return [found[key] for key in sorted(found)]


def _site() -> PurePosixPath:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return HOME / "lib" / version / "site-packages"


def _files_below(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path) / name for name in names)


def _tree(files: dict[PurePosixPath, Path]) -> Iterator[Member]:
    """Yield members for the files and for every folder above them, readable by everybody."""
    made: set[PurePosixPath] = set()
    for target in sorted(files):
        for folder in reversed(target.parents):
            if folder not in made and str(folder) != "/":
                made.add(folder)
                yield _folder(folder), None
        source = files[target]
        facts = source.stat()
        member = tarfile.TarInfo(str(target).lstrip("/"))
        member.size, member.mtime = facts.st_size, int(facts.st_mtime)
        member.mode = 0o755 if facts.st_mode & 0o100 else 0o644
        yield member, source


def _folder(path: PurePosixPath, mode: int = 0o755) -> tarfile.TarInfo:
    member = tarfile.TarInfo(str(path).lstrip("/"))
    member.type, member.mode = tarfile.DIRTYPE, mode
    return member


def _skeleton() -> Iterator[Member]:
    """Yield what is no file of this machine: links, users, the virtual environment's frame."""
    for name in ("bin", "lib", "lib64", "sbin"):
        yield _link(PurePosixPath("/") / name, f"usr/{name}"), None
    for name in ("dev", "proc", "sys", "run", "root", "var"):
        yield _folder(PurePosixPath("/") / name), None
    for name in ("tmp", "var/tmp"):
        yield _folder(PurePosixPath("/") / name, 0o1777), None
    python = os.path.realpath(sys.executable)
    for target in ("python", "python3"):
        yield _link(HOME / "bin" / target, python), None
    command = (
        f"#!{HOME}/bin/python\nimport sys\nfrom elasticd.cli.main import main\nsys.exit(main())\n"
    )
    texts = {
        HOME / "pyvenv.cfg": f"home = {os.path.dirname(python)}\n",
        HOME / "bin" / "elasticd": command,
        PurePosixPath("/etc/passwd"): _PASSWD,
        PurePosixPath("/etc/group"): "root:x:0:\nelasticd:x:1000:\n",
        PurePosixPath("/etc/nsswitch.conf"): "hosts: files dns\n",
    }
    for path, text in texts.items():
        member = tarfile.TarInfo(str(path).lstrip("/"))
        member.size, member.mode = len(text), 0o755 if path.parent.name == "bin" else 0o644
        yield member, text.encode()


def _link(path: PurePosixPath, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(str(path).lstrip("/"))
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
    return member
