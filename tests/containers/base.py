"""The images that others are built on, packed from this machine: no registry is asked for any.

A base is one tar file of a root file system: this machine's Python with pip, a shell, certificates
and what pip needs to find its packages; with torch too, if asked for. etcd and Prometheus are the
machine's own programs with the libraries that they need.
"""

import importlib.metadata
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

__all__ = ["SEARCH_PATH", "Files", "program_files", "python_files", "write_tar"]

SEARCH_PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
"""What PATH is in an image with Python: pip puts commands beside the interpreter."""

Files = dict[PurePosixPath, Path | bytes]

_SHELL = (
    *(
        "sh",
        "bash",
        "env",
        "id",
        "cat",
        "ls",
        "mkdir",
        "cp",
        "rm",
        "install",
        "sleep",
        "chmod",
        "hostname",
    ),
)
_UNUSED = re.compile(
    r"(^|/)(include|test|tests|idlelib|tkinter|turtledemo|lib2to3|site-packages|__pycache__)(/|$)"
    r"|(^|/)config-[^/]*/|\.(a|h|hpp|cuh|pyi|pyc)$|^torch/(test|share)/|^torch/bin/"
)
_NEEDED = re.compile(
    r"^(numpy|torch)/(_core/tests|testing)/[^/]+\.py$|^torch/bin/torch_shm_manager$"
)
_GLIBC = (
    "c",
    "dl",
    "gcc_s",
    "m",
    "nss_dns",
    "nss_files",
    "pthread",
    "resolv",
    "rt",
    "stdc++",
    "util",
)
"""Parts of the C and C++ libraries that packages ask for by name, or that it opens itself."""
_LIBRARY = re.compile(r"(/\S+) \(0x")
_SHARED = re.compile(r"\.so(\.\d+)*$")
_LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
_FOLDERS = ("dev", "proc", "sys", "run", "root", "var", "etc")
_OPEN_FOLDERS = ("tmp", "var/tmp")


def python_files(*, has_torch: bool) -> Files:
    """Return what an image with Python has, as python:3-slim does, from its root on."""
    program = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    files: Files = {PurePosixPath(program): program}
    for path in _below(library):
        if not _UNUSED.search(str(path.relative_to(library))):
            files[PurePosixPath(path)] = path
    site = PurePosixPath(library) / "site-packages"
    own = importlib.metadata.distributions(path=[str(site)])
    for found in [each for each in own if each.name == "pip"]:
        files |= _installed(found, site)
    if has_torch:
        for found in _needed_by("torch", "numpy"):
            files |= _installed(found, site)
    files |= _programs(_SHELL) | _settings() | _c_library()
    for name in ("python", "python3"):
        files[PurePosixPath("/usr/local/bin") / name] = _started(program)
    return files | _libraries(files)


def program_files(name: str) -> Files:
    """Return what an image of one of the machine's programs has."""
    files = _programs([name, *_SHELL]) | _c_library()
    return files | _libraries(files)


def write_tar(path: Path, files: Files) -> None:
    """Write files and the folders above them as a root file system that everybody may read."""
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, link in _LINKS.items():
            tar.addfile(_member(name, kind=tarfile.SYMTYPE, mode=0o777, target=link))
        for name in _FOLDERS:
            tar.addfile(_member(name, kind=tarfile.DIRTYPE, mode=0o755))
        for name in _OPEN_FOLDERS:
            tar.addfile(_member(name, kind=tarfile.DIRTYPE, mode=0o1777))
        made = {PurePosixPath("/") / name for name in (*_FOLDERS, *_OPEN_FOLDERS)}
        for target in sorted(files):
            for folder in reversed(target.parents):
                if folder not in made and str(folder) != "/":
                    made.add(folder)
                    tar.addfile(_member(str(folder), kind=tarfile.DIRTYPE, mode=0o755))
            _add(tar, target, files[target])


def _add(tar: tarfile.TarFile, target: PurePosixPath, source: Path | bytes) -> None:
    if isinstance(source, bytes):
        member = _member(str(target), kind=tarfile.REGTYPE, mode=0o755)
        member.size = len(source)
        tar.addfile(member, io.BytesIO(source))
        return
    facts = source.stat()
    member = _member(
        str(target), kind=tarfile.REGTYPE, mode=0o755 if facts.st_mode & 0o100 else 0o644
    )
    member.size, member.mtime = facts.st_size, int(facts.st_mtime)
    with source.open("rb") as contents:
        tar.addfile(member, contents)


def _member(name: str, *, kind: bytes, mode: int, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.type, member.mode, member.linkname = kind, mode, target
    return member


def _started(program: Path) -> bytes:
    """Return a script that starts the interpreter where it was built to stand."""
    return f'#!/bin/sh\nexec {program} "$@"\n'.encode()


def _settings() -> Files:
    """Return the few files below /etc that name resolution, TLS and pip go by."""
    texts: Files = {
        PurePosixPath("/etc/passwd"): b"root:x:0:0:root:/root:/bin/sh\n",
        PurePosixPath("/etc/group"): b"root:x:0:\n",
        PurePosixPath("/etc/nsswitch.conf"): b"hosts: files dns\n",
    }
    for name in ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(name).exists():
            texts[PurePosixPath(name)] = Path(name)
    return texts


def _programs(names: Iterable[str]) -> Files:
    files: Files = {}
    for name in names:
        found = shutil.which(name, path="/usr/bin:/usr/sbin")
        assert found is not None, f"this machine has no {name}"
        files[PurePosixPath("/usr/bin") / name] = Path(os.path.realpath(found))
    return files


def _c_library() -> Files:
    folder = Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
    found = [path for name in _GLIBC for path in folder.glob(f"lib{name}.so.[0-9]*")]
    return {PurePosixPath(path): Path(os.path.realpath(path)) for path in found}


def _installed(found: importlib.metadata.Distribution, site: PurePosixPath) -> Files:
    """Return the files of a package that stand below site-packages, but those that nobody runs."""
    files: Files = {}
    for file in found.files or ():
        name, path = str(file), Path(str(found.locate_file(file)))
        is_used = _NEEDED.search(name) or not _UNUSED.search(name)
        if is_used and not name.startswith("..") and path.is_file():
            files[site / name] = path
    return files


def _needed_by(*roots: str) -> Iterator[importlib.metadata.Distribution]:
    """Yield packages and all that they ask for without an extra."""
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        yield found
        needs = [Requirement(line) for line in found.requires or ()]
        waiting += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]


def _libraries(files: Files) -> Files:
    """Return the machine's libraries that the files need and do not bring themselves."""
    binaries = [
        str(source)
        for target, source in files.items()
        if isinstance(source, Path) and (_SHARED.search(target.name) or target.parent.name == "bin")
    ]
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    there = {os.path.realpath(source) for source in files.values() if isinstance(source, Path)}
    found = {name for name in _LIBRARY.findall(done.stdout) if os.path.realpath(name) not in there}
    # By the name under which it is asked for; /lib is a link to /usr/lib in the image too.
    return {
        PurePosixPath(f"/usr{name}" if name.startswith("/lib") else name): Path(
            os.path.realpath(name)
        )
        for name in sorted(found)
    }


def _below(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path) / name for name in names)
