"""The images: what is in them, as whom they run, and that control needs no torch."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from elasticd import __version__
from tests.fixtures.manifests import DEPLOY, OVERLAYS, built, containers, parsed, pods
from tests.fixtures.patience import patience_s

ROOT = DEPLOY.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = (ROOT / "constraints.txt").read_text().split()
NAMES = ("agent", "control")
OF_THE_BASE = {"numpy", "protobuf", "fsspec", "urllib3"}
"""What an image with torch has already, in versions that its other packages were made for."""
OF_THE_OPERATOR = {"kubernetes"}
OF_WORKERS = {"torch", "numpy"}
"""What only a process that trains imports."""


def instructions(name: str) -> list[tuple[str, str]]:
    """Split a Dockerfile into its instructions, each with the rest of its line."""
    text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(word, " ".join(rest.split())) for word, _, rest in map(cut, whole.splitlines())]


def cut(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def of(name: str, word: str) -> list[str]:
    return [rest for each, rest in instructions(name) if each == word]


def installed(name: str) -> list[str]:
    """What pip is told to install by name."""
    found: list[str] = []
    for call in of(name, "RUN")[0].split("&&"):
        words = shlex.split(call)
        if "install" in words and "pip" in words:
            words = words[words.index("install") + 1 :]
            skipped = {words[n + 1] for n, word in enumerate(words) if word == "-c"}
            found += [w for w in words if w[0] not in "-/" and w not in skipped]
    return found


def package(requirement: str) -> str:
    return re.split("[=<>]", requirement)[0]


@pytest.mark.parametrize("name", NAMES)
def test_image_is_small_to_read_and_runs_as_nobody(name: str) -> None:
    """About ten lines, on a base that one can choose; the user is a number, as Kubernetes asks."""
    words = [word for word, _ in instructions(name)]
    assert set(words) <= {
        "ARG", "FROM", "LABEL", "COPY", "RUN", "ENV", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    assert len(words) <= 12 and words.count("RUN") == 1
    assert of(name, "FROM")[0].startswith("${BASE}") and of(name, "ARG")[0].startswith("BASE")
    # A base with torch may have a user of its own, who may install nothing.
    first = ["0:0"] if name == "agent" else []
    assert of(name, "USER") == [*first, "65532:65532"]
    assert words[::-1].index("USER") < words[::-1].index("RUN") and words[-2:] == [
        "ENTRYPOINT",
        "CMD",
    ]
    (labels,) = of(name, "LABEL")
    assert f'org.opencontainers.image.version="{__version__}"' in labels
    for label in ("title", "description", "licenses"):
        assert f"org.opencontainers.image.{label}=" in labels


@pytest.mark.parametrize("name", NAMES)
def test_user_of_the_image_is_that_of_the_pods(name: str) -> None:
    """A volume belongs to the pod's group."""
    user = of(name, "USER")[-1]
    for folder in OVERLAYS:
        for part, pod in pods(built(folder)):
            context = pod["securityContext"]
            assert user == f"{context['runAsUser']}:{context['runAsGroup']}", part


@pytest.mark.parametrize("name", NAMES)
def test_image_has_what_the_package_asks_for(name: str) -> None:
    """But torch: control needs none, nor numpy, and the agent's is that of its base."""
    wanted = {package(each) for each in PROJECT["dependencies"]} - {"torch"}
    wanted -= OF_THE_OPERATOR if name == "agent" else OF_WORKERS
    found = installed(name)
    assert {package(each) for each in found} == wanted
    (run,) = of(name, "RUN")
    assert "--no-deps /src" in run, "elasticd itself asks for torch"
    if name == "control":
        assert "-c /src/constraints.txt" in run and found == [package(each) for each in found]
        return
    for each in found:
        if package(each) in OF_THE_BASE:
            assert each in PROJECT["dependencies"], "no more than is needed"
        else:
            assert each in PINS


@pytest.mark.parametrize("name", NAMES)
def test_command_and_health_are_those_that_there_are(name: str) -> None:
    """The check is a program of Python's that compiles, and asks a port that is listened on."""
    assert of(name, "ENTRYPOINT") == ['["elasticd"]']
    (command,) = of(name, "CMD")
    words = [word.strip('"') for word in command.strip("[]").split(", ")]
    if name == "agent":
        assert parsed(words).name == "agent"
    (check,) = of(name, "HEALTHCHECK")
    found = re.search(r'CMD \["python3", "-c", "(.+)"\]$', check)
    assert found is not None
    compile(found[1], name, "exec")
    (environment,) = of(name, "ENV")
    if name == "agent":
        assert "ELASTICD_PROBE_PORT=9482" in environment and ":9482/healthz" in found[1]
    else:
        (autoscaler,) = [c for n, c in containers(built("base")) if n == "elasticd-autoscaler"]
        port = autoscaler["ports"][0]["containerPort"]
        assert f"HEALTH_URL=http://127.0.0.1:{port}/healthz" in environment
        assert "environ['HEALTH_URL']" in found[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_busy_machine_does_not_make_a_container_unhealthy(name: str) -> None:
    """Swarm kills and replaces such a one, and all workers of its node with it."""
    (check,) = of(name, "HEALTHCHECK")
    assert "--timeout=30s" in check and "--interval=30s" in check and "timeout=25)" in check


def test_what_an_image_is_built_from_is_there() -> None:
    """And nothing else gets into it, above all no .git."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    kept = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / name).exists() for name in kept)
    assert {"elasticd", "agent", "pyproject.toml", "constraints.txt", "README.md"} <= set(kept)


WITHOUT_TORCH = """
import importlib, sys
for name in ("torch", "torchft", "numpy", "aiohttp", "kubernetes.aio"):
    sys.modules[name] = None  # What imports it raises.
from elasticd.cli.main import COMMANDS, main
code = max(main([name, "--help"]) for name in COMMANDS)
for name in sys.argv[1:]:
    importlib.import_module(name)
sys.exit(code)
"""
MODULES = (
    "elasticd.leader.daemon",
    "elasticd.autoscale.loop.evaluation",
    "elasticd.leader.http_server",
    "elasticd.autoscale.prometheus.client",
    "elasticd.autoscale.direct.agents_source",
    "elasticd.dashboard.http_server",
    "elasticd.kube.operator.process",
    "elasticd.kube.api.connection",
    "elasticd.store.etcd.store",
)
"""What the autoscaler, the dashboard and the operator import late."""


def test_every_command_can_be_called_without_torch(tmp_path: Path) -> None:
    """The control image has none, nor what else is left out of it."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *MODULES],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=patience_s(60.0),
    )
    assert ended.returncode == 0, ended.stderr
