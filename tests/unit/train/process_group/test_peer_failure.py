"""What looks like another rank's end, and what cannot be."""

import pytest
import torch

from elasticd.train.process_group.peer_failure import is_peer_unreachable, is_secondary


def raised(exc: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise exc from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("exc", "is_peer_gone", "expected"),
    [
        (RuntimeError("[/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:1"), False, True),
        (RuntimeError("Failed to recv, got 0 bytes. Connection was likely closed."), False, True),
        (raised(ValueError("no luck"), RuntimeError("Broken pipe")), False, True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), True, False),
        (RuntimeError("[/gloo/x.cc:1] words that nobody has seen yet"), True, True),
        (KeyError("Connection reset by peer"), True, False),
        (ZeroDivisionError("division by zero"), True, False),
    ],
)
def test_echo_is_told_from_the_scripts_own_error(
    exc: BaseException, is_peer_gone: bool, expected: bool
) -> None:
    """A KeyError comes from no collective, whatever else has happened."""
    assert is_secondary(exc, is_peer_gone=is_peer_gone) is expected


class Odd(torch.autograd.Function):
    """Raises in the backward, as a collective there would."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("words that nobody has seen yet")


def test_error_out_of_a_backward_may_be_an_echo_where_a_peer_is_gone() -> None:
    """DistributedDataParallel reduces there."""
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError) as caught:
        Odd.apply(x).backward()  # type: ignore[no-untyped-call]
    assert is_secondary(caught.value, is_peer_gone=True)
    assert not is_secondary(caught.value, is_peer_gone=False)


def test_silence_of_a_connection_is_told_from_its_end() -> None:
    """Only then is it worth the time to ask who can be reached."""
    timed_out = RuntimeError("[/gloo/pair.cc:1] Read error [10.0.0.2]:1: Connection timed out.")
    assert is_peer_unreachable(raised(ValueError("no luck"), timed_out))
    assert not is_peer_unreachable(RuntimeError("[/gloo/pair.cc:1] Connection closed by peer"))
