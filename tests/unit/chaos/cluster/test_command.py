"""`python -m chaos.cluster`: its flags, and what a wrong call says."""

import pytest

from chaos.cluster.__main__ import main
from chaos.cluster.fault import Kind


def test_help_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(kind in told for kind in Kind) and "--dry-run" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kinds", "pod-delete,earthquake"], "earthquake"),
        (["--interval", "soon"], "'soon' is no number of seconds"),
        (["--stop-for", "0"], "not above 0"),
        (["--at-once", "0"], "at-once"),
        (["--kubeconfig", "/nowhere/config"], "There is no kubeconfig /nowhere/config"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert said in told.err and told.out == "" and "Traceback" not in told.err
    assert len(told.err.strip().splitlines()) == 1


def test_without_a_kubeconfig_it_is_the_account_of_its_pod(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a pod it is the file that kubectl takes."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    assert main([]) == 2
    assert "There is no kubeconfig /nowhere/.kube/config" in capsys.readouterr().err
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert main([]) == 2
    assert "The pod's ServiceAccount cannot be used" in capsys.readouterr().err
