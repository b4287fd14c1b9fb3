from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_RESERIALIZE: _ClassVar[Task]
    TASK_TO_JSON: _ClassVar[Task]
    TASK_FROM_JSON: _ClassVar[Task]
    TASK_TENSORS: _ClassVar[Task]
    TASK_ENCODE: _ClassVar[Task]
TASK_UNSPECIFIED: Task
TASK_RESERIALIZE: Task
TASK_TO_JSON: Task
TASK_FROM_JSON: Task
TASK_TENSORS: Task
TASK_ENCODE: Task

class CodecRequest(_message.Message):
    __slots__ = ("task", "message", "data", "json", "max_chunk_bytes", "encoding")
    TASK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    task: Task
    message: str
    data: bytes
    json: str
    max_chunk_bytes: int
    encoding: Encoding
    def __init__(self, task: _Optional[_Union[Task, str]] = ..., message: _Optional[str] = ..., data: _Optional[bytes] = ..., json: _Optional[str] = ..., max_chunk_bytes: _Optional[int] = ..., encoding: _Optional[_Union[Encoding, _Mapping]] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("tensors", "compression", "checksum_algorithm", "fragment_bytes")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[PlainTensor]
    compression: int
    checksum_algorithm: int
    fragment_bytes: int
    def __init__(self, tensors: _Optional[_Iterable[_Union[PlainTensor, _Mapping]]] = ..., compression: _Optional[int] = ..., checksum_algorithm: _Optional[int] = ..., fragment_bytes: _Optional[int] = ...) -> None: ...

class PlainTensor(_message.Message):
    __slots__ = ("name", "dtype", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class CodecAnswer(_message.Message):
    __slots__ = ("result", "refused", "unsupported")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    result: Result
    refused: Refusal
    unsupported: str
    def __init__(self, result: _Optional[_Union[Result, _Mapping]] = ..., refused: _Optional[_Union[Refusal, _Mapping]] = ..., unsupported: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("data", "json", "tensors")
    DATA_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    json: str
    tensors: _containers.RepeatedCompositeFieldContainer[PlainTensor]
    def __init__(self, data: _Optional[bytes] = ..., json: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[PlainTensor, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("rule", "detail")
    RULE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    rule: str
    detail: str
    def __init__(self, rule: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
