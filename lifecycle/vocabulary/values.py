"""Values: the frozen base of everything that is said, and JSON that cannot lose or change anything.

Objects become a `FrozenDict`, arrays a tuple. What JSON cannot carry without loss is refused with the
path to it. Knows nothing of what the values mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationInfo, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from lifecycle.errors import NotJsonError

JsonValue: TypeAlias = "bool | int | float | str | tuple[JsonValue, ...] | FrozenDict | None"

_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)
_DEEPEST = 200


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
    return _sealed(frozen)


def _sealed(items: dict[str, JsonValue]) -> FrozenDict:
    """The object of items that are frozen already."""
    made = dict.__new__(FrozenDict)
    super(FrozenDict, made).update(items)
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


class Value(BaseModel, frozen=True):
    """The base of messages, blocks, failures and records: frozen, closed, camelCase in JSON.

    A field that is None is left out of the JSON.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,  # JSON has no word for them: they would come back as None
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to_json(self) -> FrozenDict:
        """The value as frozen JSON, spelled as on the wire."""
        return freeze_object(self.model_dump(exclude_none=True), type(self).__name__)
