"""The images that every node begins with, unpacked once and lent to each by hard links.

A containerd keeps images in its root folder: contents by digest, unpacked layers, and two small
databases about them. Nothing is ever written to the first two (a container writes to a layer of its
own), so nodes may share their files. The databases are copied.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.image.archive import (
    PAUSE_IMAGE,
    Image,
    Layer,
    pack_layer,
    pause_program,
    write_archive,
)
from tests.kube.testbed.image.files import (
    ENVIRONMENT,
    base_files,
    base_key,
    pause_files,
    project_files,
)
from tests.kube.testbed.machine import Machine

__all__ = ["IMAGES", "ImageStore"]

IMAGES = (
    "localhost/elasticd/agent:testbed",
    "localhost/elasticd/control:testbed",
    "localhost/etcd:testbed",
)
"""The names under which every node has the project's image; its contents are the same."""

_BASE_IMAGE = "localhost/elasticd/base:testbed"
_SOCKET = "run/containerd/containerd.sock"
# Without the plugin that answers kubelets, so it needs no network.
_CONFIG = """
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.grpc.v1.cri"]
"""
_RECIPE = ("archive.py", "files.py", "pause.c", "store.py")


class ImageStore:
    """The cache of images in one folder, beside the cache of programs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def init(self) -> Path:
        """The program that is a node's first process."""
        return pause_program(self._folder)

    def prepare(self) -> None:
        """Pack and unpack what all nodes begin with, unless that was done before."""
        self._base()

    def lend(self, folder: Path) -> None:
        """Give a node's new disk, `folder`, the images that all begin with."""
        target = folder / "var" / "lib" / "containerd"
        if target.exists():
            return
        base = self._base()
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name("containerd.partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(["cp", "-al", str(base / "containerd"), str(partial)], check=True)
        for database in partial.rglob("*.db"):
            shared = database.with_name(database.name + ".shared")
            database.rename(shared)
            shutil.copy2(shared, database)
            shared.unlink()
        partial.rename(target)

    def project_archive(self, folder: Path) -> Path:
        """Pack the project as it is now, over the layer that every node has; into `folder`."""
        base = self._base()
        digest, size = (base / "layer").read_text().split()
        with tempfile.TemporaryDirectory(dir=folder) as work:
            layers = (
                Layer(digest=digest, size=int(size), tar=None),
                pack_layer(Path(work) / "project.tar", project_files()),
            )
            path = folder / "project-image.tar"
            image = Image(
                names=IMAGES, layers=layers, environment=ENVIRONMENT, entrypoint=("elasticd",)
            )
            write_archive(path, [image])
        return path

    def _base(self) -> Path:
        """Return the folder with what all nodes begin with; packed if it was never, or is old."""
        recipe = b"".join((Path(__file__).parent / name).read_bytes() for name in _RECIPE)
        key = hashlib.sha256(base_key().encode() + recipe).hexdigest()[:12]
        base = self._folder / f"base-{key}"
        if not base.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob("base-*"):
                shutil.rmtree(old)
            self._pack(base)
        return base

    def _pack(self, base: Path) -> None:
        print("testbed: packing Python and torch of this machine as an image", flush=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            work = Path(name)
            (work / "result").mkdir()
            layer = pack_layer(work / "base.tar", base_files())
            (work / "result" / "layer").write_text(f"{layer.digest} {layer.size}\n")
            pause = pack_layer(work / "pause.tar", pause_files(self.init))
            images = [
                Image(names=(_BASE_IMAGE,), layers=(layer,), environment=ENVIRONMENT),
                Image(names=(PAUSE_IMAGE,), layers=(pause,), entrypoint=("/pause",)),
            ]
            write_archive(work / "images.tar", images)
            for tar in (work / "base.tar", work / "pause.tar"):
                tar.unlink()
            self._unpack(work / "images.tar", work)
            os.rename(
                work / "machine" / "var" / "lib" / "containerd", work / "result" / "containerd"
            )
            (work / "result").rename(base)

    def _unpack(self, archive: Path, work: Path) -> None:
        """Import an archive with a containerd on a machine that is there for that alone."""
        config = work / "containerd.toml"
        config.write_text(_CONFIG)
        machine = Machine("images", work / "machine", init=self.init, dies_with_us=True)
        machine.start()
        try:
            containerd = machine.program("containerd", ["containerd", f"--config={config}"])
            containerd.start()
            wait_until(
                lambda: (machine.root / _SOCKET).exists(),
                "containerd listens",
                30.0,
                alive=(containerd,),
            )
            machine.run("ctr", "-n=k8s.io", "images", "import", "--all-platforms", str(archive))
            containerd.stop()
        finally:
            machine.power_off()
