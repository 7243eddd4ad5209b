"""Images from our own Dockerfiles, built by Debian's buildah on bases packed from this machine.

Nothing runs in the background, and all of it stands in one folder, the store, which is removed.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.containers.base import Files, write_tar
from tests.fixtures.patience import patience_s

__all__ = ["Builder", "builder_in"]

ROOT = Path(__file__).parents[2]
_BUILD_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """buildah with a store of its own."""

    folder: Path

    def buildah(self, *words: str | Path) -> str:
        """Call buildah, and return what it prints."""
        done = subprocess.run(
            [*self._command(), *map(str, words)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience_s(_BUILD_LIMIT_S),
        )
        assert done.returncode == 0, f"buildah {words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def pack(self, name: str, files: Files, *config: str) -> None:
        """Make an image of one layer."""
        tar = self.folder / "base.tar"
        write_tar(tar, files)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, tar, "/")
        self.buildah("config", *config, container)
        self.buildah("commit", "--quiet", "--rm", container, name)
        tar.unlink()

    def build(self, dockerfile: str, name: str, *, base: str) -> None:
        """Build one of deploy/docker, as its first lines say."""
        file = ROOT / "deploy" / "docker" / dockerfile
        flags = ("--isolation=chroot", "--format=docker", f"--build-arg=BASE={base}")
        self.buildah("build", *flags, "-f", file, "-t", name, ".")

    def size_mb(self, name: str) -> float:
        """Return what an image takes on a disk, its base included."""
        number, unit = self.buildah("images", "--format={{.Size}}", name).split()
        return float(number) * {"MB": 1.0, "GB": 1e3}[unit]

    def config(self, name: str) -> Any:
        """Return what the image says of itself: user, labels, health check."""
        return json.loads(self.buildah("inspect", "--type=image", name))["Docker"]["config"]

    def export(self, name: str, tar: Path) -> None:
        """Write an image as a file that `docker load` takes."""
        self.buildah("push", "--quiet", name, f"docker-archive:{tar}:{name}")

    def run(self, name: str, *words: str, limit_s: float = 60.0, **environment: str) -> str:
        """Run a program of the image in a new container of it, on this machine's network."""
        with self.started(name, *words, **environment) as process:
            output, _ = process.communicate(timeout=patience_s(limit_s))
        assert process.returncode == 0, f"{words}: {output}"
        return output

    @contextmanager
    def started(
        self, name: str, *words: str, **environment: str
    ) -> Iterator["subprocess.Popen[str]"]:
        """Start one, and end it."""
        container = self.buildah("from", "--pull-never", name)
        settings = [f"--env={key}={value}" for key, value in environment.items()]
        process = subprocess.Popen(
            [*self._command(), "run", "--isolation=chroot", *settings, container, "--", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.communicate(timeout=patience_s(60.0))
            self.buildah("rm", container)

    def _command(self) -> list[str]:
        return ["buildah", f"--root={self.folder}/store", f"--runroot={self.folder}/run"]


@contextmanager
def builder_in(folder: Path) -> Iterator[Builder]:
    """Lend a builder, and remove its images and containers."""
    builder = Builder(folder=folder)
    folder.mkdir(exist_ok=True)
    try:
        yield builder
    finally:
        builder.buildah("rm", "--all")
        builder.buildah("rmi", "--all", "--force")
        subprocess.run(["umount", "--lazy", f"{folder}/store/overlay"], capture_output=True)
