"""How `train` is left when the world changes."""

__all__ = ["Interrupted"]


class Interrupted(BaseException):
    """The generation is over: leave `train`, it is called again in the next one.

    Not an Exception, so that an `except RuntimeError` or `except Exception` around a step (out of
    memory, a bad batch) does not swallow it.
    """
