"""How a suite mutant breaks the suite: in this process, as if the source had been written so.

A patch must reach code that was imported before it. Python binds `from codec import decode_tensor`
and `import shard_runtime_pb2 as pb` once, in every module that says so; each of these bindings is
made anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
from google.protobuf.internal import builder

from pytest_meshnet.protocol import generated
from pytest_meshnet.protocol.generated import shard_runtime_pb2
from pytest_meshnet.reference.catalogue import suite_mutant

Edit = Callable[[File], None]

_STUBS = shard_runtime_pb2.__name__
_PACKAGE = "pytest_meshnet."


def replace(owner: object, name: str, new: object) -> None:
    """Put `new` in the place of an attribute of a module or class, for every module of the suite.

    A function, class or module is replaced under whatever name it was imported; anything else only
    on `owner`, because numbers have no identity.
    """
    old = getattr(owner, name)
    setattr(owner, name, new)
    if not (callable(old) or isinstance(old, ModuleType)):
        return
    for module in _loaded():
        names = [bound for bound, value in vars(module).items() if value is old]
        for bound in names:
            setattr(module, bound, new)


def _loaded() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGE) and isinstance(module, ModuleType):
            yield module


def edited_schema(edit: Edit) -> None:
    """Replace the stubs by those of an edited schema.

    `edit` changes the descriptor of the .proto in place. Messages, enums and enum values are built
    as the generated module builds them, in a descriptor pool of their own: the default pool keeps
    one definition of a name for good.
    """
    published = File.FromString(shard_runtime_pb2.DESCRIPTOR.serialized_pb)
    file = File()
    file.CopyFrom(published)
    edit(file)
    stubs = ModuleType(_STUBS)
    descriptor = descriptor_pool.DescriptorPool().AddSerializedFile(file.SerializeToString())
    stubs.DESCRIPTOR = descriptor  # type: ignore[attr-defined]
    builder.BuildMessageAndEnumDescriptors(descriptor, vars(stubs))
    builder.BuildTopDescriptorsAndMessages(descriptor, _STUBS, vars(stubs))
    for enum in file.enum_type:
        # Tables of other modules have the wrappers of enums for their keys.
        if enum in published.enum_type:
            setattr(stubs, enum.name, getattr(shard_runtime_pb2, enum.name))
    sys.modules[_STUBS] = stubs
    replace(generated, "shard_runtime_pb2", stubs)


def schema_mutant(requirement: str) -> Callable[[Edit], Edit]:
    """Enter an edit of the schema as a suite mutant of `requirement`."""

    def enter(edit: Edit) -> Edit:
        @wraps(edit)
        def patch() -> None:
            edited_schema(edit)

        suite_mutant(requirement)(patch)
        return edit

    return enter


def message(file: File, name: str) -> DescriptorProto:
    """Find a message to be edited."""
    return next(found for found in file.message_type if found.name == name)


def field(file: File, message_name: str, name: str) -> FieldDescriptorProto:
    """Find a field to be edited."""
    return next(found for found in message(file, message_name).field if found.name == name)
