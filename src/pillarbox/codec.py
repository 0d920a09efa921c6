"""Converts bodies to bytes and back: UTF-8 for `str`, JSON for typed bodies; never pickle.

`decode` raises nothing but `SerializationError`, whatever the bytes. `encode` refuses a body of the
wrong type, and values that JSON would change (NaN, bytes in an untyped body). It does not check the
types of fields, except those of type `Any`: the receiver finds a wrong one. An untyped tuple comes
back as a list, an instance of a subclass as the body type.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import math
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from msgspec import inspect as shapes

from pillarbox.core.errors import InvalidParameterError, SerializationError

T = TypeVar("T")
_Step = Callable[[Any], Any]
DEPTH_MAX = 128  # levels of nesting; well below the stack limit of any receiver
EXCERPT_CHARS_MAX = 200
SUPPORTED = (
    "str, bytes, a plain JSON type, datetime, UUID, Decimal, Enum, Literal, dataclass, TypedDict, "
    "NamedTuple, msgspec Struct, attrs class, pydantic model, or a union, list or dict of these"
)
_PLAIN = "untyped data is plain JSON types with str keys: pass body_type to send other types"
_CLASSES: dict[Any, tuple[type, ...]] = {
    Any: (object, dict, list, str, int),  # everything; the common ones are listed for speed
    None: (type(None),),
    float: (float, int),
    bytes: (bytes, bytearray, memoryview),
    Sequence: (list, tuple),  # a str is a Sequence too
}
_STR_ONLY = frozenset({str})
_SCALARS = frozenset({str, int, bool, type(None), msgspec.UnsetType})
QUICK_ERRORS = (SerializationError, TypeError, ValueError)
_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Encodes and decodes one body type.

    The quick functions return the same results but may raise any of `QUICK_ERRORS`; call the
    others then for the proper error.
    """

    body_type: Any
    content_type: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    quick_encode: Callable[[T], bytes]
    quick_decode: Callable[[bytes], T]


def codec_for(body_type: type[T] | Any = Any) -> Codec[T]:
    """Return the codec of a body type; InvalidParameterError if JSON can't represent it."""
    hint: Any = body_type
    try:
        return _build(hint)
    except TypeError:  # unhashable, such as `Annotated[int, []]`
        return _build.__wrapped__(hint)


@functools.lru_cache(maxsize=1024)
def _build(body_type: Any) -> Codec[Any]:
    if body_type is str:
        in_c = str.encode, bytes.decode
        return Codec(str, "text/plain; charset=utf-8", _encode_str, _decode_str, *in_c)
    if body_type is bytes:
        both = _encode_bytes, bytes
        return Codec(bytes, "application/octet-stream", *both, *both)
    try:
        if _has_pydantic(body_type):  # msgspec refuses some unions that pydantic accepts
            return _pydantic_codec(body_type)
        nodes = list(_walk(shapes.type_info(Any if body_type is object else body_type)))
        if any(_has_pydantic(getattr(node, "cls", None)) for node in nodes):
            return _pydantic_codec(body_type)
        return _msgspec_codec(body_type, nodes)
    except Exception as exc:  # a forward reference or a class's own hook may raise anything
        raise InvalidParameterError("body_type", body_type, f"{SUPPORTED} ({_cause(exc)})") from exc


def _encode_str(body: str) -> bytes:
    try:
        return str.encode(body)
    except TypeError:
        _refuse_type(str, body)
    except UnicodeEncodeError as exc:
        raise _unsendable(str, exc) from exc


def _decode_str(data: bytes) -> str:
    try:
        return data.decode()
    except Exception as exc:
        raise _undecodable(str, data, exc) from exc


def _encode_bytes(body: bytes) -> bytes:
    if type(body) is bytes:
        return body
    try:
        return bytes(body) if isinstance(body, _CLASSES[bytes]) else _refuse_type(bytes, body)
    except ValueError as exc:  # a released memoryview
        raise _unsendable(bytes, exc) from exc


def _json_codec(body_type: Any, dump: _Step, load: _Step, to_builtins: _Step) -> Codec[Any]:
    exact, accepts = _acceptance(body_type)

    def encode(body: Any) -> bytes:
        if type(body) not in exact and not accepts(body):
            _refuse_type(body_type, body)
        try:
            data: bytes = dump(body)
            # NaN and infinity are written as null: then check the value. (`in` is twice as slow.)
            deep = len(data) > DEPTH_MAX and data.count(b"[") + data.count(b"{") > DEPTH_MAX
            if deep or data.count(b"null"):
                _check_value(to_builtins(body))
        except Exception as exc:
            raise _unsendable(body_type, exc) from exc
        return data

    def decode(data: bytes) -> Any:
        try:
            return load(data)
        except Exception as exc:
            raise _undecodable(body_type, data, exc) from exc

    return Codec(body_type, "application/json", encode, decode, encode, decode)


def _msgspec_codec(body_type: Any, nodes: list[Any]) -> Codec[Any]:
    for node in nodes:
        cls = getattr(node, "cls", None)
        custom = isinstance(node, shapes.CustomType | shapes.RawType | shapes.ExtType)
        if cls is msgspec.Struct or (custom and not _is_any(node)):
            raise TypeError(f"{_name(cls or msgspec.Raw)} has no JSON form")
        if any(field.name.startswith("_") for field in getattr(cls, "__attrs_attrs__", ())):
            raise TypeError(f"{_name(cls)} has a private attrs field, which JSON would leave out")

    def dump_open(body: Any) -> bytes:
        _check_open(nodes[0], body)
        return _encode_json(body)

    dump = dump_open if any(map(_is_any, nodes)) else _encode_json
    return _json_codec(body_type, dump, msgspec.json.Decoder(body_type).decode, msgspec.to_builtins)


def _pydantic_codec(body_type: Any) -> Codec[Any]:
    if getattr(body_type, "__module__", "") == "pydantic.main":
        raise TypeError("BaseModel has no fields; pass a model of your own")
    adapter = importlib.import_module("pydantic").TypeAdapter(body_type)
    to_builtins = functools.partial(adapter.dump_python, round_trip=True)

    def dump(body: Any) -> bytes:
        data: bytes = adapter.dump_json(body, round_trip=True, warnings="error")
        if b"*****" in data:  # how pydantic writes a secret
            _check_value(to_builtins(body))
        return data

    load = functools.partial(adapter.validate_json, by_alias=True, by_name=True)
    return _json_codec(body_type, dump, load, to_builtins)


def _has_pydantic(hint: Any) -> bool:
    is_model = isinstance(hint, type) and hasattr(hint, "__pydantic_core_schema__")
    return is_model or any(_has_pydantic(part) for part in typing.get_args(hint))


def _walk(shape: Any) -> Iterator[Any]:
    """Yield a type and all its parts, each once, even if it refers to itself."""
    seen: set[int] = set()
    todo = [shape]
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo.extend(node)
        elif isinstance(node, shapes.Type | shapes.Field) and id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(getattr(node, name) for name in node.__struct_fields__)


def _is_any(node: Any) -> bool:
    return isinstance(node, shapes.AnyType) or getattr(node, "cls", None) is object


def _members(hint: Any) -> Iterator[Any]:
    """Yield the members of a union, however it is written; any other type itself."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        yield from _members(hint.__origin__)
    elif origin in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from _members(member)
    elif type(hint).__name__ in ("NewType", "TypeAliasType"):
        yield from _members(getattr(hint, "__supertype__", None) or hint.__value__)
    else:
        yield hint


def _acceptance(body_type: Any) -> tuple[frozenset[type], Callable[[Any], bool]]:
    """Return the classes that are accepted without further tests, and the test for all others."""
    classes: set[type] = set()
    literals: set[tuple[type, Any]] = set()
    for member in _members(body_type):
        origin = typing.get_origin(member) or member
        if origin is typing.Literal:
            literals.update((type(value), value) for value in typing.get_args(member))
        elif typing.is_typeddict(origin):
            classes.add(dict)
        else:
            classes.update(_CLASSES.get(origin, (origin if isinstance(origin, type) else object,)))

    def accepts(body: Any) -> bool:
        kind = type(body)
        if kind in (str, int, bool, type(None)) and (kind, body) in literals:
            return True
        # In Python a bool is an int and a datetime is a date; a receiver would refuse them.
        narrow = bool if kind is bool else datetime.datetime
        if isinstance(body, narrow) and not classes & {narrow, object}:
            return False
        return isinstance(body, tuple(classes))

    return frozenset(classes), accepts


def _check_open(shape: Any, value: Any) -> None:
    """Check that values of type `Any` (or in a bare `dict`) are plain JSON types."""
    parts: list[tuple[Any, Any]] = []
    if _is_any(shape):
        _check_value(value, plain=True)
    elif type(shape) in (shapes.UnionType, shapes.Metadata):
        parts = [(part, value) for part in getattr(shape, "types", None) or (shape.type,)]
    elif isinstance(shape, shapes.TupleType) and isinstance(value, tuple):
        parts = list(zip(shape.item_types, value, strict=False))
    elif isinstance(shape, shapes.DictType) and isinstance(value, dict):
        parts = [(shape.value_type, item) for item in value.values()]
        parts.append((shape.key_type, dict.fromkeys(value)))  # keys of type Any must be str
    elif hasattr(shape, "item_type") and isinstance(value, list | tuple | set | frozenset):
        parts = [(shape.item_type, item) for item in value]
    elif isinstance(shape, shapes.TypedDictType) and isinstance(value, dict):
        parts = [(f.type, value[f.name]) for f in shape.fields if f.name in value]
    elif hasattr(shape, "fields") and isinstance(value, typing.get_origin(shape.cls) or shape.cls):
        parts = [(f.type, getattr(value, f.name, None)) for f in shape.fields]
    for part, item in parts:
        _check_open(part, item)


def _check_value(value: Any, plain: bool = False, depth: int = 0) -> None:
    """Refuse non-finite floats, secrets and deep nesting; if `plain`, all but JSON types."""
    kind = type(value)
    items: Any = ()
    if kind is dict:
        items = value.values()
        if plain and not _STR_ONLY.issuperset(map(type, value)):
            raise TypeError(f"it has a dict key that is not a str; {_PLAIN}")
    elif kind is list or kind is tuple or (not plain and kind in (set, frozenset)):
        items = value
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"it holds {value}, which JSON can't represent; send None or a str instead"
        )
    elif plain and kind is not float and kind not in _SCALARS:
        raise TypeError(f"it holds a value of type {_name(kind)}; {_PLAIN}")
    elif kind is not float and hasattr(value, "get_secret_value"):
        raise ValueError("it holds a pydantic secret, which is masked in JSON; send it as a str")
    if items and depth >= DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX} levels, or contains itself")
    for item in items:
        if type(item) not in _SCALARS:
            _check_value(item, plain, depth + 1)


def _name(hint: Any) -> str:
    is_class = isinstance(hint, type) and not typing.get_args(hint)
    return hint.__qualname__ if is_class else str(hint).replace("typing.", "")


def _cause(exc: Exception) -> str:
    text = str(exc) or type(exc).__name__
    if hasattr(exc, "errors") and type(exc).__module__.startswith("pydantic_core"):
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        text = f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the top'}"
    return " ".join(text.split())[:EXCERPT_CHARS_MAX]


def _refuse_type(body_type: Any, body: object) -> NoReturn:
    what = f"the body must be {_name(body_type)}, not {_name(type(body))}"
    raise SerializationError(f"{what}: convert it, or open the mailbox with another body_type")


def _unsendable(body_type: Any, exc: Exception) -> SerializationError:
    return SerializationError(f"the body can't be sent as {_name(body_type)}: {_cause(exc)}")


def _undecodable(body_type: Any, data: bytes, exc: Exception) -> SerializationError:
    what = f"the body can't be read as {_name(body_type)}: {_cause(exc)}"
    text = repr(bytes(data[:EXCERPT_CHARS_MAX]).decode("utf-8", "backslashreplace"))
    return SerializationError(f"{what}; its {len(data)} bytes begin {text[:EXCERPT_CHARS_MAX]}")
