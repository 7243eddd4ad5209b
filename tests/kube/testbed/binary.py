"""Kubernetes' own programs, built once from Debian's source package and kept in a cache folder.

No registry and no download page is asked: the source comes by apt from the mirror that the machine
uses already, with the same signatures, and everything that it needs is vendored in it. 1.20.2 is
what Debian 12 has: old, but a real API server with CRDs, server-side apply, leases and RBAC.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.kube.testbed.package import FOR_BUILD, BuildFailed, Missing, require

__all__ = ["PROGRAMS", "VERSION", "build_programs", "cache_folder", "program"]

VERSION = "1.20.2"
PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)

_REFLECT = "golang-github-modern-go-reflect2"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGES = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
"""Where the programs look for their version; without it they report a template of git's."""


def cache_folder() -> Path:
    """Return where binaries and images are kept from one run to the next, outside the project."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "elasticd" / f"kubernetes-{VERSION}"


def program(name: str) -> Path:
    """Return where one of PROGRAMS is, once `build_programs` has returned."""
    return cache_folder() / "bin" / name


def build_programs() -> None:
    """Build PROGRAMS if this machine has never done so; that takes about five minutes.

    Raises:
        Missing: they cannot be built here; the message says what is missing.
        BuildFailed: nothing is missing, and the build failed.
    """
    folder = cache_folder() / "bin"
    if _complete(folder):
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _locked(cache_folder() / "build.lock"):
        if not _complete(folder):  # Nobody else has built them while we waited.
            require(FOR_BUILD)
            _build(folder)


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in PROGRAMS)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path) -> None:
    began_s = time.monotonic()
    work = cache_folder() / "build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    log = cache_folder() / "build.log"
    log.unlink(missing_ok=True)
    print(f"testbed: building Kubernetes {VERSION}, a few minutes once; see {log}", flush=True)
    _fetch(work, log)
    goroot = work / "go"
    place = goroot / "src" / "k8s.io" / "kubernetes"
    place.parent.mkdir(parents=True)
    _unpacked(work, "kubernetes").rename(place)
    # The vendored one reads the runtime's maps as Go had them up to 1.17: with Debian's Go the API
    # server would crash on the first custom object.
    vendored = place / "vendor" / "github.com" / "modern-go" / "reflect2"
    shutil.rmtree(vendored)
    _unpacked(work, _REFLECT).rename(vendored)
    environment = os.environ | {
        "GOPATH": str(goroot),
        "GO111MODULE": "off",
        "GOCACHE": str(work / "cache"),
        "GOFLAGS": "",
        # The compiler collects its garbage less often, for some memory.
        "GOGC": "400",
    }
    # The makefile asks git for a version; it gets a repository without a file.
    _run(["git", "init", "-q"], place, log, environment)
    author = ("-c", "user.name=testbed", "-c", "user.email=testbed@localhost")
    commit = ["git", *author, "commit", "-q", "--allow-empty", "-m", "source"]
    _run(commit, place, log, environment)
    _run(["make", "gen_openapi"], place, log, environment)
    partial = work / "bin"
    partial.mkdir()
    targets = [f"./cmd/{name}" for name in PROGRAMS]
    command = ["go", "build", "-o", f"{partial}/", "-ldflags", _ldflags(), *targets]
    _run(command, place, log, environment)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    _remove(work)
    print(f"testbed: built in {time.monotonic() - began_s:.0f} s", flush=True)


def _ldflags() -> str:
    major, minor, _ = VERSION.split(".")
    facts = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    where = [f"k8s.io/kubernetes/vendor/{package}" for package in _PACKAGES]
    settings = [f"-X {place}.{key}={value}" for place in where for key, value in facts.items()]
    return " ".join(["-s", "-w", *settings])


def _fetch(work: Path, log: Path) -> None:
    """Fetch the source packages by a sources list and package lists of our own; needs no root."""
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True)
    (work / "sources.list").write_text(_source_line())
    options = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": lists,
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        # Root would fetch as a user who may not write here.
        "APT::Sandbox::User": "root",
    }
    apt = [
        "apt-get",
        "-oAcquire::Retries=3",
        *(f"-o{key}={value}" for key, value in options.items()),
    ]
    try:
        _run([*apt, "update"], work, log, os.environ)
        _run([*apt, "source", "kubernetes", _REFLECT], work, log, os.environ)
    except BuildFailed as error:
        raise Missing(f"apt does not bring Kubernetes' source. {error}") from None


def _unpacked(work: Path, package: str) -> Path:
    """Return the folder of a source package."""
    (found,) = (path for path in work.glob(f"{package}-[0-9]*") if path.is_dir())
    if package == "kubernetes" and VERSION not in found.name:
        raise Missing(
            f"The testbed is written for Kubernetes {VERSION}, and apt's source package is "
            f"{found.name}: use Debian 12."
        )
    return found


def _source_line() -> str:
    """Return a `deb-src` line for the mirror from which this machine has its packages."""
    form = "$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(
            f"Kubernetes is built from Debian's source, and apt failed: {error}"
        ) from None
    lines = [line.split() for line in done.stdout.splitlines()]
    # The suite itself comes before its updates: it has the shortest name.
    debian = sorted(
        (line[2:] for line in lines if len(line) == 4 and line[:2] == ["Debian", "main"]),
        key=lambda place: len(place[1]),
    )
    if not debian:
        raise Missing("Kubernetes is built from Debian's source, and apt knows no Debian mirror.")
    uri, suite = debian[0]
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    return f"deb-src {signed}{uri} {suite} main\n"


def _remove(folder: Path) -> None:
    """Remove a folder in which a build may have left read-only folders."""
    for path, names, _ in os.walk(folder):
        for name in names:
            if not (Path(path) / name).is_symlink():
                (Path(path) / name).chmod(0o755)
    shutil.rmtree(folder)


def _run(command: Sequence[str], cwd: Path, log: Path, environment: Mapping[str, str]) -> None:
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        done = subprocess.run(
            command, cwd=cwd, env=environment, stdout=output, stderr=output, check=False
        )
    if done.returncode:
        tail = " / ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
        raise BuildFailed(f"Kubernetes could not be built, `{command[0]}` failed ({log}): {tail}")
