"""The stubs of etcd3 with the protobuf of today; each in a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

from tests.fixtures.patience import patience_s


def run(code: str, *paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(map(str, [*paths, Path.cwd()])), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=patience_s(60.0),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INSTALL = "from elasticd.store.etcd.stubs import install; install(); "


def test_etcd3_imports_after_install_and_messages_round_trip() -> None:
    """Messages, nested messages, enums on messages and in the module."""
    code = INSTALL + (
        "install(); import etcd3; from etcd3.etcdrpc import rpc_pb2 as r, kv_pb2 as k;"
        "m = r.TxnRequest(compare=[r.Compare(key=b'k', range_end=b'l', target=r.Compare.MOD)]);"
        "assert r.TxnRequest.FromString(m.SerializeToString()) == m;"
        "assert r.NOSPACE == 1 and r.AlarmType.Name(1) == 'NOSPACE' and k.Event.DELETE == 1;"
        "print(etcd3.client.__name__)"
    )
    assert run(code) == "client"


def test_other_packages_may_register_files_of_the_same_names() -> None:
    """rpc.proto is nobody's own name: the default pool stays free for theirs."""
    code = INSTALL + (
        "from google.protobuf import descriptor_pb2 as d, descriptor_pool as p;"
        "p.Default().AddSerializedFile("
        "d.FileDescriptorProto(name='rpc.proto', package='other').SerializeToString());"
        "from etcd3.etcdrpc import rpc_pb2; print(rpc_pb2.DESCRIPTOR.package)"
    )
    assert run(code) == "etcdserverpb"


def test_many_threads_may_install_at_once() -> None:
    """All see the same classes."""
    code = INSTALL + (
        "from concurrent.futures import ThreadPoolExecutor as T;"
        "import sys; [sys.modules.pop(n) for n in list(sys.modules) if n.startswith('etcd3')];"
        "t = T(8); list(t.map(lambda _: install(), range(64)));"
        "from etcd3.etcdrpc import rpc_pb2; print(rpc_pb2.RangeRequest(key=b'k').key)"
    )
    assert run(code) == "b'k'"


def test_stubs_of_a_newer_protoc_are_left_alone(tmp_path: Path) -> None:
    """Should etcd3 ever be released again."""
    folder = tmp_path / "etcd3" / "etcdrpc"
    folder.mkdir(parents=True)
    (tmp_path / "etcd3" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    for name in ("kv_pb2", "auth_pb2", "rpc_pb2"):
        (folder / f"{name}.py").write_text("DESCRIPTOR = 'new'\n")
    code = INSTALL + "from etcd3.etcdrpc import rpc_pb2; print(rpc_pb2.DESCRIPTOR)"
    assert run(code, tmp_path) == "new"


def test_store_imports_no_heavy_package() -> None:
    """The agent has 60 MB for everything."""
    code = (
        "import sys, elasticd.store.etcd.store;"
        "print([n for n in ('numpy', 'pandas', 'torch', 'kubernetes') if n in sys.modules])"
    )
    assert run(code) == "[]"
