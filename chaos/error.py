"""What the fault runner raises on purpose; the command line prints it as one sentence."""

__all__ = ["ChaosError", "NotNow", "WrongInput"]


class ChaosError(Exception):
    """The run could not be done: this machine or the job lacks something. Says what."""

    exit_code = 3


class WrongInput(ChaosError):
    """A scenario or a flag is wrong: says which value, and what to write instead."""

    exit_code = 2


class NotNow(ChaosError):
    """It cannot be done while another fault lasts; it may be tried again. Says what."""
