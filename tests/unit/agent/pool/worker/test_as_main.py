"""The search path of a worker is the one that its own environment gives."""

from elasticd_agent.pool.worker.as_main import python_path, search_path


def test_pythonpath_is_read_as_python_does() -> None:
    """Relative to the folder it starts in; an empty entry is that folder; none if unset."""
    assert python_path({"PYTHONPATH": "/a:b::../c"}, "/w/d") == ["/a", "/w/d/b", "/w/d", "/w/c"]
    assert python_path({"PYTHONPATH": ""}, "/w") == []
    assert python_path({}, "/w") == []


def test_workers_pythonpath_takes_the_place_of_the_pools() -> None:
    """What the installation gives stays, in its order; nothing stands twice."""
    now = ["/pool", "/lib", "/site"]
    assert search_path(now, ["/pool"], ["/job", "/site"]) == ["/job", "/site", "/lib"]
    assert search_path(now, ["/pool"], ["/pool"]) == now
    assert search_path(now, ["/pool"], []) == ["/lib", "/site"]
