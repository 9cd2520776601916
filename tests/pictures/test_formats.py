"""Lifecycles in format strings."""

from __future__ import annotations

import pytest

from lifecycle.definition.step import Step
from lifecycle.definition.turn import Turn
from lifecycle.pictures.formats import FORMATS
from lifecycle.pictures.sequence import VIEWS, sequence
from lifecycle.pictures.states import states
from lifecycle.pictures.tables import table


def test_a_format_names_a_picture() -> None:
    assert f"{Turn:sequence}" == sequence(Turn)
    assert f"{Turn:full}" == sequence(Turn, "full")
    assert f"{Step:state}" == states(Step)
    assert f"{Step:table}" == table(Step)
    assert set(FORMATS) == {"sequence", "state", "table", *VIEWS}


def test_a_lifecycle_of_a_user_is_drawn_likewise() -> None:
    class Brief(Turn):
        """A turn by another name."""

    assert f"{Brief:overview}" == sequence(Turn)


def test_what_is_no_picture_of_ours_is_left_to_the_library() -> None:
    assert f"{Step}" == repr(Step)
    assert f"{Step:mermaid}".startswith("stateDiagram-v2")
    with pytest.raises(ValueError, match="nonsense"):
        f"{Step:nonsense}"
