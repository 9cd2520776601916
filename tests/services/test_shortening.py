"""A result that is too long for the model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lifecycle.services.results import shortened
from lifecycle.vocabulary.messages import Content, ImageBlock, TextBlock, text

PICTURE = ImageBlock(url="u")


def shown(content: Content) -> str:
    return "".join(block.text if isinstance(block, TextBlock) else "P" for block in content)


def test_what_is_not_too_long_is_the_very_same() -> None:
    content = text("12345678")

    assert shortened(content, 8) is content


def test_the_mark_stands_before_the_last_quarter_and_says_how_much_is_missing() -> None:
    told = shown(shortened(text("a" * 900 + "b" * 100), 40))

    assert told == "a" * 30 + "\n[... 960 of 1,000 characters were left out here ...]\n" + "b" * 10


def test_pictures_stay_where_they_are_and_blocks_without_anything_left_are_gone() -> None:
    blocks = [TextBlock(text=letter * 4) for letter in "abcde"]

    cut = shortened((blocks[0], PICTURE, blocks[1], blocks[2], PICTURE, blocks[3], blocks[4]), 8)

    assert shown(cut) == "aaaaPbb\n[... 12 of 20 characters were left out here ...]\nPee"


WORDS = st.text(st.characters(codec="utf-8"), max_size=9).map(lambda words: TextBlock(text=words))


@given(st.lists(WORDS | st.just(PICTURE), max_size=6), st.integers(0, 20))
def test_there_is_one_mark_and_as_much_as_may_be(blocks: list[TextBlock | ImageBlock], most: int) -> None:
    whole = "".join(block.text for block in blocks if isinstance(block, TextBlock))
    total, cut = len(whole), shortened(tuple(blocks), most)

    assert cut.count(PICTURE) == blocks.count(PICTURE)
    if total <= most:
        assert cut == tuple(blocks)
        return
    words = "".join(block.text for block in cut if isinstance(block, TextBlock))
    before, mark, after = words.partition(f"\n[... {total - most:,} of {total:,} characters were left out here ...]\n")
    assert mark
    assert len(before) + len(after) == most
    assert whole.startswith(before)
    assert whole.endswith(after)
