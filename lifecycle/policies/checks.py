"""What every policy asks of its options before it looks at what they mean: that each is of the kind it should be."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.errors import PolicyError


def check_numbers(options: object, *, whole: Iterable[str] = (), real: Iterable[str] = ()) -> None:
    """Raise PolicyError unless these fields hold numbers; one that is None is left alone."""
    for name in whole:
        given = getattr(options, name)
        if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
            raise _wrong(options, name, given, "a whole number")
    for name in real:
        given = getattr(options, name)
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise _wrong(options, name, given, "a number")


def check_kind(options: object, name: str, given: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raise PolicyError unless `given` is of a kind; `what` names it in words."""
    if not isinstance(given, kind):
        raise _wrong(options, name, given, what)


def _wrong(options: object, name: str, given: object, what: str) -> PolicyError:
    return PolicyError(f"{type(options).__name__}: {name}={given!r:.60} is not {what}")
