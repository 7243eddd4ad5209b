"""Who may speak to the API server, by token, and the files with which they do."""

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ADMIN", "User", "read_token", "write_kubeconfig", "write_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody whom the API server knows by a token of the token file."""

    name: str
    group: str = ""

    @staticmethod
    def node(node: str) -> "User":
        """Return the user of a node's kubelet, which may see what is bound to that node."""
        return User(name=f"system:node:{node}", group="system:nodes")


ADMIN = User(name="admin", group="system:masters")


def write_tokens(path: Path, users: Iterable[User]) -> None:
    """Write the token file unless it is there; a new cluster gets new tokens."""
    if path.exists():
        return
    lines = [
        f'{secrets.token_hex(16)},{user.name},{user.name},"{user.group}"\n'
        if user.group
        else f"{secrets.token_hex(16)},{user.name},{user.name}\n"
        for user in users
    ]
    path.touch(mode=0o600)
    path.write_text("".join(lines))


def read_token(path: Path, user: User) -> str:
    """Return a user's token.

    Raises:
        KeyError: the file does not have this user.
    """
    tokens = {line.split(",")[1]: line.split(",")[0] for line in path.read_text().splitlines()}
    return tokens[user.name]


def write_kubeconfig(path: Path, *, url: str, ca_file: Path, user: User, token: str) -> None:
    """Write a kubeconfig, as JSON, which every reader of YAML takes; `ca_file` is only named."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "testbed",
                "cluster": {"server": url, "certificate-authority": str(ca_file)},
            }
        ],
        "users": [{"name": user.name, "user": {"token": token}}],
        "contexts": [
            {
                "name": "testbed",
                "context": {"cluster": "testbed", "user": user.name, "namespace": "default"},
            }
        ],
        "current-context": "testbed",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1) + "\n")
