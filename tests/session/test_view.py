"""A view shows what it was made for, whatever the list does."""

from __future__ import annotations

import pytest

from lifecycle.session.view import View


def test_a_bounded_view_stays_as_it_was_while_the_list_grows() -> None:
    items = [1, 2, 3]
    view = View(items, 2)
    items.append(4)

    assert list(view) == [1, 2]
    assert len(view) == 2
    assert view == [1, 2]
    assert view != [1, 3]
    assert view != (1, 2, 3)
    assert (view[0], view[-1]) == (1, 2)
    assert view[:] == (1, 2)
    assert view[::-1] == (2, 1)
    assert view[5:] == ()
    assert 3 not in view
    for outside in (2, -3):
        with pytest.raises(IndexError):
            view[outside]


def test_a_live_view_grows_with_the_list_but_not_under_a_reader() -> None:
    items = [1]
    view = View(items)
    seen: list[int] = []
    for item in view:
        seen.append(item)
        items.append(item + 1)

    assert seen == [1]
    assert view == [1, 2]


def test_a_view_offers_nothing_that_changes_it() -> None:
    view = View([1])

    assert not hasattr(view, "append")
    with pytest.raises(TypeError):
        view[0] = 2  # type: ignore[index]  # pyright: ignore[reportIndexIssue]  # that it cannot is what is tested
    with pytest.raises(TypeError):
        hash(view)
    assert repr(view) == "<View of 1 items>"
