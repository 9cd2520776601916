"""Values: the frozen base of everything that is said, and JSON that cannot lose or change anything.

Objects become a `FrozenDict`, arrays a tuple. What JSON cannot carry without loss is refused with the
path to it. Whoever makes a value has it checked; the framework, which has checked what it says where that came in,
makes its own by `trusted` constructors. Knows nothing of what the values mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
)

from pydantic import AfterValidator, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationInfo, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import ArgsKwargs, CoreSchema, InitErrorDetails, ValidationError, core_schema

from lifecycle.errors import NotJsonError

JsonValue: TypeAlias = "bool | int | float | str | tuple[JsonValue, ...] | FrozenDict | None"

P = ParamSpec("P")
V = TypeVar("V")

_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)
_DEEPEST = 200
_SMALL = 2**62
"""An integer between its negative and itself needs no closer look."""


class FrozenDict(dict[str, Any]):
    """A JSON object whose mutators raise. Hashable, picklable, and its own copy.

    Takes what a dict takes, and freezes it as `freeze` does; raises NotJsonError where that cannot be.
    """

    __slots__ = ()

    def __new__(cls, *args: Any, **fields: Any) -> FrozenDict:
        given: dict[Any, Any] = dict(*args, **fields)
        return _freeze_object(given, "object", "", 0)

    if not TYPE_CHECKING:

        def __init__(self, *_: object, **__: object) -> None:
            """Filled by `__new__`; a second call must not fill it again."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this object is part of a record and cannot be changed; build a new dict from it instead")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refuse
        clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a dict has none because it can change; this one cannot
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


def freeze(value: object, where: str = "value") -> JsonValue:
    """Return `value` as deeply immutable JSON.

    Mappings become `FrozenDict`, lists and tuples become tuples, `-0.0` becomes `0.0`; a `FrozenDict`
    is returned as it is. `where` names the value in an error.

    Raises:
        NotJsonError: for NaN and infinities, integers beyond 64 bit, keys that are no strings, lone
            surrogates, values nested deeper than 200 (so also cycles), and every other type.
    """
    return _freeze(value, where, "", 0)


def _freeze(value: object, where: str, path: str, depth: int) -> JsonValue:
    if type(value) is int and -_SMALL < value < _SMALL:
        return value
    if value is None or value is True or value is False or type(value) is FrozenDict:
        return value
    if isinstance(value, str):
        return _text(value if type(value) is str else str.__str__(value), where, path)  # a StrEnum member is a str
    if isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise NotJsonError(where, path, f"is an integer beyond 64 bit: {value}")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(where, path, f"is {value}, which JSON cannot carry")
        return value + 0.0  # -0.0 + 0.0 is 0.0
    if depth >= _DEEPEST:
        raise NotJsonError(where, path[:80] + "...", f"is nested deeper than {_DEEPEST}, or contains itself")
    if isinstance(value, (dict, Mapping)):  # dict beside it, because to ask whether it is a Mapping is slow
        return _freeze_object(cast("Mapping[object, object]", value), where, path, depth)
    if isinstance(value, (list, tuple)):
        items = cast("list[object] | tuple[object, ...]", value)
        return tuple([_freeze(item, where, f"{path}[{n}]", depth + 1) for n, item in enumerate(items)])
    raise NotJsonError(where, path, f"is of type {type(value).__name__}, which JSON cannot carry")


def _freeze_object(value: Mapping[object, object], where: str, path: str, depth: int) -> FrozenDict:
    frozen: dict[str, JsonValue] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotJsonError(where, path, f"has the key {key!r}, which is no string")
        if type(item) is not str or not item.isascii():  # the usual item is plain text, which is frozen as it is
            item = _freeze(item, where, f"{path}.{key}" if path else key, depth + 1)
        frozen[key if key.isascii() else _text(key, where, path)] = item
    return sealed(frozen)


_plain_dict: Any = dict
_new_dict, _fill = _plain_dict.__new__, _plain_dict.update


def sealed(items: dict[str, Any]) -> FrozenDict:
    """The object of items that are frozen already. Nothing is checked."""
    made: FrozenDict = _new_dict(FrozenDict)
    _fill(made, items)
    return made


def _text(value: str, where: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise NotJsonError(where, path, "holds a lone surrogate, which is no text") from None
    return value


EMPTY = FrozenDict()


def mend(text: str) -> str:
    """Return `text` with lone surrogates replaced by U+FFFD: what models and tools say is never refused for them."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


Mended = Annotated[str, AfterValidator(mend)]
"""A field of a value that holds text from elsewhere which must never be refused."""


def freeze_object(value: object, where: str = "value") -> FrozenDict:
    """`freeze` for a value that must be a JSON object. Raises NotJsonError where it is none."""
    frozen = _freeze(value, where, "", 0)
    if not isinstance(frozen, FrozenDict):
        raise NotJsonError(where, "", f"is of type {type(value).__name__}; a JSON object is needed")
    return frozen


@dataclass(frozen=True, slots=True)
class _Frozen:
    """How pydantic reads a field of JSON: `by` this function. It writes it as the JSON that it is, in its own code."""

    by: Callable[[object], JsonValue]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._read)

    def _read(self, value: object, info: ValidationInfo) -> JsonValue:
        try:
            return self.by(value)
        except NotJsonError as wrong:  # say whose field it is: an event is refused where it is made (LOG-02)
            owner = (info.config or {}).get("title", "")
            where = ".".join(part for part in (owner, info.field_name) if part)
            raise NotJsonError(where or wrong.where, wrong.path, wrong.reason) from None


Json = Annotated[Any, _Frozen(freeze), WithJsonSchema({})]
"""A field of a value that holds any JSON, frozen."""

JsonObject = Annotated[FrozenDict, _Frozen(freeze_object), WithJsonSchema({"type": "object"})]
"""A field of a value that holds a JSON object, frozen."""


# -- values -------------------------------------------------------------------------------------------------------


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class _Values(type):
    """Makes each class of values a frozen dataclass with slots: a record then takes a tenth of what a model does."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, frozen: bool = True) -> _Values:
        said = cast("dict[str, str]", namespace.get("__annotations__", {}))
        names = [one for one, kind in said.items() if not str(kind).startswith(("ClassVar", "typing.ClassVar"))]
        usual = {one: namespace.pop(one) for one in names if one in namespace}  # a slot takes the place of a default
        made: Any = super().__new__(cls, name, bases, {**namespace, "__slots__": tuple(names)})
        dataclass(kw_only=True, init=False, unsafe_hash=True)(made)  # frozen by `Value.__setattr__`
        declared: dict[str, Field[Any]] = made.__dataclass_fields__
        for one, default in usual.items():
            told: Field[Any] = cast("Any", default if isinstance(default, Field) else field(default=default))
            declared[one].default, declared[one].default_factory = told.default, told.default_factory
        return cast("_Values", made)


class Value(metaclass=_Values):
    """The base of messages, blocks, failures and records: frozen, closed, camelCase in JSON.

    Making one checks its fields, and raises pydantic.ValidationError. A field that is None is left out of the JSON.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,  # JSON has no word for them: they would come back as None
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    if not TYPE_CHECKING:

        def __init__(self, **given: object) -> None:
            _adapter(type(self)).validator.validate_python(ArgsKwargs((), given), self_instance=self)

        def __setattr__(self, name: str, value: object) -> None:
            raise _frozen(self, name, value)

        def __delattr__(self, name: str) -> None:
            raise _frozen(self, name, None)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[type[Self], tuple[object, ...]]]:
        return _remade, (type(self), tuple(getattr(self, name) for name in _names(type(self))))

    def to_json(self) -> FrozenDict:
        """The value as frozen JSON, spelled as on the wire."""
        return freeze_object(_adapter(type(self)).dump_python(self, exclude_none=True), type(self).__name__)

    def model_dump_json(self, *, exclude_none: bool = False) -> str:
        """The value as JSON text, spelled as on the wire."""
        return _serializer(type(self))(self, exclude_none=exclude_none).decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The value with some fields changed, which are not checked. Raises TypeError for one that it does not have."""
        changed = dict(update or {})
        names = _names(type(self))
        parts = [changed.pop(name) if name in changed else getattr(self, name) for name in names]
        if changed:
            raise TypeError(f"a {type(self).__name__} has no {', '.join(changed)}; it has {', '.join(names)}")
        return _remade(type(self), parts)

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """The value that parsed JSON spells; one of this class as it is. Raises pydantic.ValidationError."""
        return cast("Self", _validator(cls)(value))

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """The value that JSON text spells. Raises pydantic.ValidationError."""
        return cast("Self", _adapter(cls).validate_json(text))


def _frozen(value: Value, name: str, given: object) -> ValidationError:
    wrong: InitErrorDetails = {"type": "frozen_instance", "loc": (name,), "input": given}
    return ValidationError.from_exception_data(type(value).__name__, [wrong])


@cache
def _adapter(kind: type[Value]) -> TypeAdapter[Value]:
    """What checks and writes the values of a class; made when it is first needed."""
    return TypeAdapter(kind)


@cache
def _validator(kind: type[Value]) -> Callable[[object], Value]:
    """What checks the values of a class, without the adapter around it, which costs as much as a small value."""
    checks: Any = _adapter(kind).validator
    return cast("Callable[[object], Value]", checks.validate_python)


@cache
def _serializer(kind: type[Value]) -> Callable[..., bytes]:
    """What writes the values of a class, likewise."""
    writes: Any = _adapter(kind).serializer
    return cast("Callable[..., bytes]", writes.to_json)


def _remade(kind: type[V], parts: Iterable[object]) -> V:
    """A value of parts in the order of its fields. Nothing is checked."""
    made = object.__new__(kind)
    for name, part in zip(_names(cast("Any", kind)), parts, strict=True):
        object.__setattr__(made, name, part)
    return made


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def trusted(kind: Callable[P, V]) -> Callable[P, V]:
    """A constructor of a class of values that takes its fields by name and checks nothing.

    For what the framework says itself, of parts that were checked where they came in: text without lone surrogates,
    frozen JSON, tuples. It costs a sixth of checking them once more.
    """
    takes: list[str] = []
    lines: list[str] = []
    names: dict[str, Any] = {"_new": object.__new__, "_kind": kind}  # a field may be called `kind`
    for one in fields(cast("Any", kind)):
        takes.append(one.name)
        if one.default is not MISSING:
            names[f"_usual_{one.name}"] = one.default
            takes[-1] += f"=_usual_{one.name}"
        names[f"_set_{one.name}"] = getattr(kind, one.name).__set__  # a slot's own way in, which freezing leaves open
        lines.append(f"    _set_{one.name}(_made, {one.name})\n")
    star = "*, " if takes else ""
    source = f"def make({star}{', '.join(takes)}):\n    _made = _new(_kind)\n{''.join(lines)}    return _made\n"
    exec(compile(source, f"<trusted {getattr(kind, '__name__', kind)}>", "exec"), names)
    made: Callable[P, V] = names["make"]
    return made
