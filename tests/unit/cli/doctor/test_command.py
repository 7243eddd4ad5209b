"""Which address `elasticd doctor` lets two processes of this machine form a group at."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner

from elasticd.cli.doctor import command
from elasticd.cli.doctor.finding import Finding
from elasticd.errors import EnvironmentProblem

ETCD = ("--etcd", "http://[fd00::1]:2379")


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ((), command.LOCAL),
        (ETCD, "fd00::5"),
        ((*ETCD, "--local-addr", "fd00::6"), "fd00::6"),
    ],
)
def test_process_group_is_tried_at_the_address_that_other_nodes_use(
    monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], address: str
) -> None:
    """The one that leads to etcd; a run on this machine alone has the loopback address."""
    assert _tried(monkeypatch, arguments) == [address]


def test_process_group_is_tried_on_loopback_where_there_is_no_other_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That no address was found is a finding of its own."""

    def none(_: Sequence[str]) -> str:
        raise EnvironmentProblem("There is no route.")

    assert _tried(monkeypatch, ETCD, none) == [command.LOCAL]


def _tried(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], own: Any = None) -> list[str]:
    """Return the addresses at which a process group was formed."""
    tried: list[str] = []

    def of_torch(_: str, address: str, __: int) -> Iterator[Finding]:
        tried.append(address)
        return iter(())

    monkeypatch.delenv("ELASTICD_ETCD", raising=False)
    monkeypatch.setattr(command, "own_address", own or (lambda _: "fd00::5"))
    monkeypatch.setattr(command, "_of_torch", of_torch)
    monkeypatch.setattr(command, "_of_cluster", lambda *_: iter(()))
    CliRunner().invoke(command.doctor, arguments, catch_exceptions=False)
    return tried
