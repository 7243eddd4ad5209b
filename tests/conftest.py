"""Fixtures for all tests: real etcds. And what every test may take for granted of its process."""

import gc
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

# Before anybody imports grpc itself: without its handlers of fork, as an agent does.
import elasticd.store.etcd.channel  # noqa: F401
from elasticd.telemetry import log
from tests.fixtures.history import has_history
from tests.fixtures.patience import patience_s

pytest_plugins = ["tests.fixtures.etcd", "tests.fixtures.store"]

_TEST_LIMIT_S = 120.0

# An example that takes long on a busy machine is no fault of what it tries: only `pytest-timeout`
# has a say on time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin with a shell's signals, with kept bytecode and limits that fit this machine.

    `nohup make test &` starts us with SIGINT, SIGQUIT and SIGHUP ignored; what we start inherits
    that, and the tests of Ctrl-C and of a lost terminal start what a person starts in a shell.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Containers often forbid Python to keep its bytecode. What the tests start by the thousand
    # would then compile elasticd each time: a fifth of all they compute.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What is not configured is printed: by a thread that an earlier test left, into what another
    # test captures. A test of the log configures it.
    log.configure(True, "info", open(os.devnull, "w"))  # noqa: SIM115 - as long as this process
    if config.getoption("timeout", None) is None:
        config.option.timeout = patience_s(_TEST_LIMIT_S)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stretch the limits that tests set for themselves, as the one for all is stretched; leave out
    what needs commits that an archive or a shallow clone has not.
    """
    if not has_history():
        lacking = [item for item in items if item.get_closest_marker("history") is not None]
        config.hook.pytest_deselected(items=lacking)
        items[:] = [item for item in items if item not in lacking]
    for item in items:
        mark = item.get_closest_marker("timeout")
        if mark is not None:
            limit_s, *others = mark.args
            item.add_marker(pytest.mark.timeout(patience_s(limit_s), *others, **mark.kwargs), False)


def pytest_collection_finish() -> None:
    """Leave the tests themselves and all modules out of later collections of garbage.

    They stay as long as the process. A test that collects, so as to count what is still open, would
    look through a million of their objects each time: a second of computing.
    """
    gc.collect()
    gc.freeze()
