"""Markdown in which everything is shown as it was written."""

from __future__ import annotations

import pytest

from lifecycle.pictures.markdown import cell, code, fenced, text


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("`agent/x` and chunk* <b>", r"`agent/x` and chunk\* &lt;b>"),
        ("[a](b) #1 $x$ ~y~", r"\[a\](b) \#1 \$x\$ \~y\~"),
        ("snake_case and _emphasis_", r"snake_case and \_emphasis\_"),
        ("`a*b_<c>`", "`a*b_<c>`"),
        ("two\n lines", "two lines"),
        ("&lt;", "&amp;lt;"),
    ],
)
def test_text_is_shown_as_it_was_written(words: str, made: str) -> None:
    assert text(words) == made


def test_a_bar_ends_no_cell() -> None:
    assert cell("a|b `c|d`") == r"a\|b `c\|d`"
    assert code("a | b") == r"`a \| b`"
    assert code("x < y and `z`") == "``x < y and `z```"
    assert code("") == ""


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert fenced("mermaid", "x\n") == "```mermaid\nx\n```\n"
    assert fenced("", "````") == "`````\n````\n`````\n"
