"""What went wrong, as one line that is told whatever went wrong."""

from __future__ import annotations

import pytest

from lifecycle.vocabulary.failures import render_chain


class Mute(Exception):
    """An exception that cannot say what it is about."""

    def __str__(self) -> str:
        raise LookupError("no words")


def _caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError(), "ValueError"),
        (_caused(OSError("no tea"), KeyError("k")), "OSError: no tea, caused by KeyError: 'k'"),
        (Mute(), "Mute: its text cannot be told (LookupError)"),
        (
            ExceptionGroup("two tasks", [ValueError("the disk"), _caused(OSError("no tea"), Mute())]),
            "ExceptionGroup: two tasks (2 sub-exceptions): ValueError: the disk; "
            "OSError: no tea, caused by Mute: its text cannot be told (LookupError)",
        ),
        (
            ExceptionGroup("seven", [ValueError(n) for n in range(7)]),
            "ExceptionGroup: seven (7 sub-exceptions): "
            "ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4; and 2 more",
        ),
    ],
    ids=["bare", "caused", "mute", "a group", "a large group"],
)
def test_a_failure_is_told_with_its_causes_and_with_what_a_group_holds(error: BaseException, told: str) -> None:
    assert render_chain(error) == told


def test_a_failure_that_caused_itself_is_told_once() -> None:
    error, within = ValueError("x"), KeyError("k")
    error.__cause__ = error
    group = ExceptionGroup("g", [within])
    within.__cause__ = group

    assert render_chain(error) == "ValueError: x"
    assert render_chain(group) == "ExceptionGroup: g (1 sub-exception): KeyError: 'k'"
