"""Secrets: held so that no repr, log, pickle or error shows them, and struck out of what a server echoes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

_SHORTEST = 4
"""A shorter secret is not struck out: it would garble every text, and protects nothing."""


class Secret:
    """A key. Only `reveal` gives it away; `origin` says where it came from, such as the name of a variable."""

    __slots__ = ("_value", "origin")

    def __init__(self, value: str, origin: str) -> None:
        self._value, self.origin = value, origin

    def __repr__(self) -> str:
        return f"<secret from {self.origin}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the secret from {self.origin} is not pickled; read it again where it is needed")

    def reveal(self) -> str:
        """The secret itself."""
        return self._value

    @property
    def sendable(self) -> bool:
        """Whether it can stand in an HTTP header: printable ASCII without blanks."""
        return self._value.isascii() and self._value.isprintable() and " " not in self._value


def strike_out(text: str, secrets: Iterable[Secret]) -> str:
    """`text` without the secrets."""
    for secret in secrets:
        value = secret.reveal()
        if len(value) >= _SHORTEST:
            text = text.replace(value, "[key]")
    return text
