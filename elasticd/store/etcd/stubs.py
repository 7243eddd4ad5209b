"""Make the stubs of the PyPI package `etcd3` 0.12.0 importable with a current protobuf.

An old protoc generated them, and protobuf 4 and later refuse such modules ("Descriptors cannot be
created directly"). But each of the three modules carries the complete description of its messages
as one literal, the serialized file descriptor. So we cut that literal out of the source as text,
never running the module, build the message classes from it with the protobuf that is installed,
and put modules made of them where `etcd3.etcdrpc` will look for them.

Rejected: `PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python` (the slow runtime, for the whole process,
and protobuf 5 refuses it too); stubs of our own, generated here (one more copy of etcd's schema to
keep); an old protobuf (torch's and others' requirements forbid it).
"""

import ast
import importlib.util
import re
import sys
import threading
from pathlib import Path
from types import ModuleType

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

__all__ = ["install"]

# In the order of their imports: `rpc_pb2` uses the messages of the other two.
_MODULES = ("kv_pb2", "auth_pb2", "rpc_pb2")

# As the old protoc wrote it, on one line: serialized_pb=_b('...'). A string literal of ASCII text
# with escapes, which stands for bytes by way of latin-1. Only this one line is parsed: the syntax
# tree of the whole file (5,000 lines) would cost 0.15 s and 20 MB.
_OLD_LITERAL = re.compile(r"^\s*serialized_pb=_b\(('(?:[^'\\\n]|\\.)*')\)", re.MULTILINE)

_lock = threading.Lock()


def install() -> None:
    """Put working stub modules in place, unless they are there or etcd3 brings good ones."""
    with _lock:
        if any(f"etcd3.etcdrpc.{name}" in sys.modules for name in _MODULES):
            return
        folder = _stub_folder()
        descriptions = [_serialized_file(folder / f"{name}.py") for name in _MODULES]
        if any(description is None for description in descriptions):
            return  # Written by a newer protoc: the plain import will do.
        # A pool of our own: other packages register files called kv.proto or rpc.proto too, and
        # one pool takes a name only once.
        pool = DescriptorPool()
        for name, description in zip(_MODULES, descriptions, strict=True):
            assert description is not None
            pool.AddSerializedFile(description)
            file = pool.FindFileByName(f"{name.removesuffix('_pb2')}.proto")
            sys.modules[f"etcd3.etcdrpc.{name}"] = _module(f"etcd3.etcdrpc.{name}", file)


def _stub_folder() -> Path:
    # find_spec of the top level name only: of a submodule it would import the broken parent.
    spec = importlib.util.find_spec("etcd3")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'etcd3'", name="etcd3")
    return Path(spec.origin).parent / "etcdrpc"


def _serialized_file(source: Path) -> bytes | None:
    found = _OLD_LITERAL.search(source.read_text(encoding="utf-8"))
    if found is None:
        return None
    literal = ast.literal_eval(found.group(1))
    assert isinstance(literal, str)
    return literal.encode("latin-1")


def _module(name: str, file: FileDescriptor) -> ModuleType:
    module = ModuleType(name, f"Rebuilt from the descriptor of {file.name}.")
    module.DESCRIPTOR = file  # type: ignore[attr-defined]
    for message in file.message_types_by_name.values():
        setattr(module, message.name, GetMessageClass(message))
    # Enums of the file itself; the values of nested ones are attributes of their message.
    for enum in file.enum_types_by_name.values():
        setattr(module, enum.name, EnumTypeWrapper(enum))
        for value in enum.values:
            setattr(module, value.name, value.number)
    return module
