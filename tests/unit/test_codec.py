"""Bodies to bytes and back (R38), and bytes that can't be read (R23)."""

from __future__ import annotations

import datetime as dt
import enum
import math
import subprocess
import sys
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.codec import DEPTH_MAX, EXCERPT_CHARS_MAX, codec_for
from pillarbox.core.errors import InvalidParameterError, SerializationError

T = TypeVar("T")
UTC = dt.UTC


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Order:
    id: int
    price: float = 1.5
    note: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Envelope(Generic[T]):
    payload: T
    at: dt.datetime


@dataclass
class Tree:
    value: float
    children: list[Tree] = field(default_factory=list)  # a forward reference, to itself


class Point(msgspec.Struct):
    x: int
    y: float | None = None


class Box(msgspec.Struct, Generic[T]):
    item: T


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


class Open(msgspec.Struct):
    payload: Any
    at: dt.datetime | None = None


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class User(pydantic.BaseModel):
    name: str
    score: float = 0.0
    born: dt.date | None = None


class Aliased(pydantic.BaseModel):
    one: int = pydantic.Field(alias="uno")
    two: int = pydantic.Field(serialization_alias="due")


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Node(pydantic.BaseModel):
    children: list[Node] = []


@dataclass
class HoldsModel:
    user: User


UserId = NewType("UserId", int)
NOON = dt.datetime(2030, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)

ROUND_TRIPS: list[tuple[Any, Any]] = [
    (str, ""),
    (str, "h\u00e9llo \U0001f600 \0"),
    (bytes, b""),
    (bytes, bytes(range(256))),
    (Order, Order(1)),
    (Order, Order(1, 2.5, "n", ["a"])),
    (Envelope[Order], Envelope(Order(1), NOON)),
    (Envelope[list[Point]], Envelope([Point(1)], NOON)),
    (Tree, Tree(1.0, [Tree(2.0), Tree(3.0, [Tree(4.0)])])),
    (Point, Point(1, 2.0)),
    (Point, Point(1)),
    (Box[Order], Box(Order(2))),
    (Cat | Dog, Dog("rex")),
    (Movie, {"title": "Up"}),
    (Movie, {"title": "Up", "year": 2009}),
    (Pair, Pair(1, "r")),
    (Colour, Colour.BLUE),
    (Level, Level.LOW),
    (Literal["a", 1, None], "a"),
    (Literal["a", 1, None], 1),
    (Literal["a", 1, None], None),
    (Optional[Order], None),  # noqa: UP045 - the old spelling must work too
    (Union[int, str], "s"),  # noqa: UP007 - likewise
    (Order | None, Order(3)),
    (int | str | None, 5),
    (bool | int, True),
    (UserId, 7),
    (Annotated[int, msgspec.Meta(ge=0)], 7),
    (Annotated[Order | None, "unhashable", []], Order(1)),
    (dt.datetime, NOON),
    (dt.date, dt.date(2030, 1, 2)),
    (dt.time, dt.time(1, 2, 3)),
    (dt.timedelta, dt.timedelta(days=1, microseconds=5)),
    (uuid.UUID, uuid.UUID(int=5)),
    (Decimal, Decimal("1.10")),
    (int, 2**63),
    (int, -(2**200)),
    (int, 10**4000),
    (float, 0.1),
    (float, -0.0),
    (float, 3),
    (bool, False),
    (None, None),
    (type(None), None),
    (list, [1, "a", None, [2.5]]),
    (list[int], [1, 2]),
    (dict, {"a": [1]}),
    (dict[str, Order], {"a": Order(1)}),
    (dict[int, str], {1: "a"}),
    (dict[str, Any], {"a": {"b": None}}),
    (dict[str, object], {"a": {"b": 1}}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (list[bytes], [b"\xff"]),
    (bytes | None, b"\xff"),
    (Open, Open({"a": [1]}, NOON)),
    (User, User(name="a")),
    (User, User(name="null", score=2.0, born=dt.date(2000, 1, 1))),
    (User | None, None),
    (list[User] | User, [User(name="a")]),
    (Page[User], Page[User](items=[User(name="a")])),
    (Aliased, Aliased(uno=1, two=2)),
    (HoldsModel, HoldsModel(User(name="a"))),
    (Any, {"a": [1, 2.5, True, None, "x", {"y": []}]}),
    (object, [1]),
]


@pytest.mark.parametrize(("body_type", "body"), ROUND_TRIPS, ids=lambda v: repr(v)[:40])
def test_R38_round_trip(body_type: Any, body: Any) -> None:
    codec = codec_for(body_type)
    data = codec.encode(body)
    assert type(data) is bytes
    back = codec.decode(data)
    assert back == body
    assert type(back) is type(body) or body_type is float


def test_R38_round_trip_of_attrs() -> None:
    attrs = pytest.importorskip("attrs")
    part = attrs.make_class("Part", {"n": attrs.field(type=int)})
    codec = codec_for(list[part])
    assert codec.decode(codec.encode([part(3)])) == [part(3)]
    hidden = attrs.make_class("Hidden", {"_n": attrs.field(type=int)})
    with pytest.raises(InvalidParameterError, match="private"):
        codec_for(hidden)


def test_R38_a_pydantic_dataclass_is_validated() -> None:
    @pydantic.dataclasses.dataclass
    class Checked:
        n: Annotated[int, pydantic.Field(gt=0)]

    codec: Any = codec_for(Checked)
    assert codec.decode(codec.encode(Checked(1))) == Checked(1)
    with pytest.raises(SerializationError, match="greater than 0 at n"):
        codec.decode(b'{"n": 0}')


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a_b_")[::2]])
def test_R38_bytes_takes_any_bytes_like(body: Any) -> None:
    assert codec_for(bytes).encode(body) == b"ab"


def test_R38_released_memoryview_is_refused() -> None:
    view = memoryview(b"ab")
    view.release()
    with pytest.raises(SerializationError, match="can't be sent as bytes"):
        codec_for(bytes).encode(view)


def test_R38_content_types() -> None:
    assert codec_for(str).content_type == "text/plain; charset=utf-8"
    assert codec_for(bytes).content_type == "application/octet-stream"
    assert codec_for(Order).content_type == codec_for().content_type == "application/json"
    assert codec_for(Order).body_type is Order
    assert codec_for().body_type is Any


def test_R38_wire_form_is_plain() -> None:
    assert codec_for(str).encode("a") == b"a"
    assert codec_for(Point).encode(Point(1)) == b'{"x":1,"y":null}'


def test_R38_codec_is_cached() -> None:
    assert codec_for(Order) is codec_for(Order)
    assert codec_for(list[Order]) is codec_for(list[Order])


WRONG: list[tuple[Any, Any]] = [
    (str, 1),
    (str, b"a"),
    (str, None),
    (bytes, "a"),
    (bytes, 5),
    (bytes, [1]),
    (Order, {"id": 1}),
    (Order, None),
    (Order, Point(1)),
    (Point, Order(1)),
    (Movie, [("title", "Up")]),
    (Pair, (1, "r")),
    (Colour, "red"),
    (Literal["a", 1], "b"),
    (Literal["a", 1], True),
    (Literal["a", 1], []),
    (int, True),
    (int, 1.0),
    (int, "1"),
    (float, True),
    (float | None, False),
    (bool, 1),
    (int | str, None),
    (UserId, "7"),
    (Annotated[int, "x"], "7"),
    (dt.date, NOON),
    (dt.datetime, dt.date(2030, 1, 2)),
    (dt.datetime, True),
    (list[int], (1,)),
    (dict[str, int], [1]),
    (Sequence[int], "ab"),
    (Envelope[Order], Order(1)),
    (User, {"name": "a"}),
    (User | None, "a"),
    (list[User], User(name="a")),
]


@pytest.mark.parametrize(("body_type", "body"), WRONG, ids=lambda v: repr(v)[:40])
def test_R38_wrong_type_is_refused_at_send(body_type: Any, body: Any) -> None:
    with pytest.raises(SerializationError, match=r"must be .+, not \w+: convert it, or open"):
        codec_for(body_type).encode(body)


@pytest.mark.parametrize("body", ["\ud800", "ok \udfff"])
@pytest.mark.parametrize("body_type", [str, Any, str | None])
def test_R38_lone_surrogates_are_refused(body_type: Any, body: str) -> None:
    with pytest.raises(SerializationError, match="surrogates not allowed"):
        codec_for(body_type).encode(body)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("body_type", "make"),
    [
        (float, lambda n: n),
        (Any, lambda n: n),
        (Any, lambda n: {"a": [n]}),
        (list[float], lambda n: [1.0, n]),
        (dict[str, tuple[float, ...]], lambda n: {"a": (n,)}),
        (set[float], lambda n: {n}),
        (Order, lambda n: Order(1, n)),
        (Tree, lambda n: Tree(1.0, [Tree(n)])),
        (Point, lambda n: Point(2**80, n)),
        (Open, lambda n: Open([n])),
        (User, lambda n: User(name="a", score=n)),
        (Page[float], lambda n: Page[float](items=[n])),
        (Page[Any], lambda n: Page[Any](items=[{"x": (n,)}, {n}])),
    ],
)
def test_R38_non_finite_numbers_are_refused(
    body_type: Any, make: Callable[[float], Any], number: float
) -> None:
    with pytest.raises(SerializationError, match="which JSON can't represent"):
        codec_for(body_type).encode(make(number))


def test_R38_ints_too_long_for_python_are_refused() -> None:
    for body_type in (int, Any, list[int]):
        body: Any = 10**5000
        with pytest.raises(SerializationError):
            codec_for(body_type).encode([body] if body_type == list[int] else body)


class Text(str):
    __slots__ = ()


NOT_PLAIN: list[Any] = [
    b"a",
    bytearray(b"a"),
    Order(1),
    Point(1),
    NOON,
    {1, 2},
    Decimal(1),
    uuid.UUID(int=1),
    Colour.RED,
    Level.LOW,
    Pair(1, "r"),
    User(name="a"),
    Text("a"),
    object(),
    len,
    {1: 2},
    {None: 2},
    {b"a": 2},
    {Text("a"): 2},
]


@pytest.mark.parametrize("bad", NOT_PLAIN, ids=lambda v: repr(v)[:40])
@pytest.mark.parametrize(
    ("body_type", "wrap"),
    [
        (Any, lambda v: v),
        (object, lambda v: [v]),
        (Any, lambda v: {"a": (1, [v])}),
        (list, lambda v: [v]),
        (dict, lambda v: {"a": v}),
        (dict[str, Any] | None, lambda v: {"a": v}),
        (Open, Open),
        (list[Open], lambda v: [Open(v)]),
        (Box[tuple[int, Any]], lambda v: Box((1, v))),
        (Envelope, lambda v: Envelope(v, NOON)),
    ],
)
def test_R38_untyped_parts_take_plain_json_only(
    body_type: Any, wrap: Callable[[Any], Any], bad: Any
) -> None:
    with pytest.raises(SerializationError, match="pass body_type to send other types"):
        codec_for(body_type).encode(wrap(bad))


def test_R38_open_keys_must_be_str() -> None:
    with pytest.raises(SerializationError, match="dict key that is not a str"):
        codec_for(dict).encode({1: 2})


def test_R38_untyped_tuple_comes_back_as_list() -> None:
    codec: Any = codec_for(Any)
    assert codec.decode(codec.encode((1, (2,)))) == [1, [2]]


def test_R38_unset_fields_stay_unset() -> None:
    class Patch(msgspec.Struct):
        value: Any | msgspec.UnsetType = msgspec.UNSET

    codec: Any = codec_for(Patch)
    assert codec.decode(codec.encode(Patch())) == Patch()


def nested(levels: int, wrap: Callable[[Any], Any], core: Any) -> Any:
    for _ in range(levels):
        core = wrap(core)
    return core


NESTED: list[tuple[Any, Callable[[Any], Any], Any]] = [
    (Any, lambda v: [v], 1.5),
    (dict[str, Any], lambda v: {"a": v}, {}),
    (list, lambda v: [v], []),
    (Tree, lambda v: Tree(1.0, [v]), Tree(1.0)),
    (Node, lambda v: Node(children=[v]), Node()),
]


@pytest.mark.parametrize(("body_type", "wrap", "core"), NESTED)
def test_R38_nesting_has_a_limit(body_type: Any, wrap: Callable[[Any], Any], core: Any) -> None:
    codec = codec_for(body_type)
    body = nested(DEPTH_MAX // 2 - 1, wrap, core)
    assert codec.decode(codec.encode(body)) == body
    with pytest.raises(SerializationError, match="nested deeper than 128 levels"):
        codec.encode(nested(DEPTH_MAX + 1, wrap, core))


@pytest.mark.parametrize(
    ("body_type", "wrap", "core"),
    [NESTED[0], NESTED[3]],
)
def test_R38_nesting_beyond_the_stack_is_refused(
    body_type: Any, wrap: Callable[[Any], Any], core: Any
) -> None:
    with pytest.raises(SerializationError, match=r"nested deeper|recursion"):
        codec_for(body_type).encode(nested(20_000, wrap, core))


def test_R38_a_body_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    tree = Tree(1.0)
    tree.children.append(tree)
    for body_type, body in ((Any, loop), (list[Any], loop), (Tree, tree)):
        with pytest.raises(SerializationError):
            codec_for(body_type).encode(body)


def test_R38_pydantic_checks_fields_at_send() -> None:
    with pytest.raises(SerializationError, match="can't be sent as User"):
        codec_for(User).encode(User.model_construct(name=5))


def test_R38_pydantic_secrets_are_refused_not_masked() -> None:
    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    with pytest.raises(SerializationError, match="secret"):
        codec_for(Login).encode(Login(password=pydantic.SecretStr("x")))


class Plain:
    pass


class Lost(msgspec.Struct):
    x: Missing  # noqa: F821 - the point of the test


UNSUPPORTED: list[Any] = [
    Plain,
    list[Plain],
    dict[str, Plain | None],
    Envelope[Plain],
    Callable[[int], int],
    len,
    math,
    complex,
    types.FunctionType,
    3,
    "Order",
    str | bytes,
    Order | HoldsModel | Envelope[int],
    Order | Envelope[int],
    msgspec.Raw,
    msgspec.Struct,
    pydantic.BaseModel,
    Point | User,
    Lost,
]


@pytest.mark.parametrize("body_type", UNSUPPORTED, ids=lambda v: repr(v)[:40])
def test_R38_unsupported_type_is_refused_at_once(body_type: Any) -> None:
    with pytest.raises(InvalidParameterError, match="body_type must be str, bytes, a plain JSON"):
        codec_for(body_type)


def test_R38_pydantic_is_imported_only_for_its_own_types() -> None:
    code = (
        "import sys, dataclasses; from pillarbox.codec import codec_for\n"
        "d = dataclasses.make_dataclass('D', [('x', int)]); codec_for(d).encode(d(1))\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=30,
)


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)  # tells 1 from 1.0 and from True, and 0.0 from -0.0


@given(json_values)
def test_R38_plain_json_comes_back_as_sent(body: Any) -> None:
    codec: Any = codec_for(Any)
    assert same(codec.decode(codec.encode(body)), body)


@given(st.integers(), st.floats(), st.none() | st.text(), st.lists(st.text()))
def test_R38_dataclass_comes_back_or_is_refused(
    id_: int, price: float, note: str | None, tags: list[str]
) -> None:
    codec = codec_for(Order)
    body = Order(id_, price, note, tags)
    if math.isfinite(price):
        assert codec.decode(codec.encode(body)) == body
    else:
        with pytest.raises(SerializationError):
            codec.encode(body)


@given(st.text(st.characters()))
def test_R38_any_text_comes_back_or_is_refused(body: str) -> None:
    codec = codec_for(str)
    try:
        data = codec.encode(body)
    except SerializationError:
        assert any(0xD800 <= ord(char) <= 0xDFFF for char in body)
    else:
        assert codec.decode(data) == body


ALL_TYPES = list({repr(body_type): body_type for body_type, _ in ROUND_TRIPS}.values())
jsonish = (
    st.binary()
    | st.text('[]{}:,"\\u0123456789.eE+-truefalsn \ud7ff').map(lambda text: text.encode())
    | json_values.map(msgspec.json.encode)
)


@given(jsonish, st.sampled_from(ALL_TYPES))
def test_R23_decode_raises_only_serialization_errors(data: bytes, body_type: Any) -> None:
    codec = codec_for(body_type)
    try:
        codec.decode(data)
    except SerializationError as exc:
        text = str(exc)
    else:
        return
    assert text.startswith("the body can't be read as")


HOSTILE = [
    b"",
    b"\xff\xfe",
    b'"\xff"',
    b'"\\ud800"',
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000,
    b'{"children":[' * 100_000,
    b"1" * 100_000,
    b"-" + b"9" * 400,
    b"1e999999999",
    b"0." + b"1" * 100_000,
    b'{"id":' + b"7" * 10_000 + b"}",
    b"NaN",
    b"1 2",
    b'"' + b"x" * 100_000,
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda v: repr(v[:12]))
@pytest.mark.parametrize("body_type", [*ALL_TYPES, Node, float | int], ids=repr)
def test_R23_hostile_bytes_are_only_serialization_errors(body_type: Any, data: bytes) -> None:
    try:
        codec_for(body_type).decode(data)
    except SerializationError as exc:
        text = str(exc)
    else:
        return
    assert len(text) < 3 * EXCERPT_CHARS_MAX


def test_R23_message_names_type_cause_and_shows_the_start() -> None:
    data = b'{"id": "seven", "note": "' + b"\xc3\xa9" * 5_000 + b'"}'
    with pytest.raises(SerializationError) as caught:
        codec_for(Order).decode(data)
    text = str(caught.value)
    assert text.startswith("the body can't be read as Order: Expected `int`, got `str`")
    assert 'its 10027 bytes begin \'{"id": "seven"' in text
    assert len(text) < 2 * EXCERPT_CHARS_MAX
    assert isinstance(caught.value.__cause__, msgspec.ValidationError)


def test_R23_a_validator_that_raises_anything_is_a_serialization_error() -> None:
    class Touchy(msgspec.Struct):
        x: int

        def __post_init__(self) -> None:
            raise KeyError(self.x)

    with pytest.raises(SerializationError, match="Touchy"):
        codec_for(Touchy).decode(b'{"x":1}')


def test_R23_a_wrong_field_is_found_by_the_receiver() -> None:
    codec: Any = codec_for(Order)
    data = codec.encode(Order("seven"))  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="Expected `int`, got `str`"):
        codec.decode(data)
