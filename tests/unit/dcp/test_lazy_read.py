"""`elasticd.checkpoint` names what a script uses and imports torch only for it."""

import subprocess
import sys

import pytest

import elasticd.checkpoint


def test_torch_comes_with_the_first_name_that_needs_it() -> None:
    """The agent and the command line import this package too."""
    script = (
        "import sys, elasticd.checkpoint as c; assert 'torch' not in sys.modules; "
        "assert {'Reader', 'Writer'} <= set(dir(c)); "
        "assert 'torch' not in sys.modules; c.Reader; assert 'torch' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no attribute 'Riter'"):
        elasticd.checkpoint.Riter  # noqa: B018
