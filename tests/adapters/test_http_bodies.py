"""Compression that nobody asked for, undone in pieces of bounded size."""

from __future__ import annotations

import gzip
import zlib

import pytest
from lifecycle_adapters.http_bodies import BombError, Inflater

TEXT = b"data: [DONE]\n\n" * 20_000
PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "GZIP": gzip.compress(TEXT) + b"rubbish behind it",
    "deflate": zlib.compress(TEXT),
    "Deflate ": zlib.compress(TEXT)[2:-4],
    "identity, gzip": gzip.compress(TEXT),
    "identity": TEXT,
    "": TEXT,
}


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body_is_unpacked_however_it_is_cut(encoding: str, size: int) -> None:
    inflater, packed = Inflater(encoding), PACKED[encoding]
    if size == 1 and len(packed) == len(TEXT):
        size = 1000

    pieces = [piece for at in range(0, len(packed), size) for piece in inflater.pieces(packed[at : at + size])]

    assert inflater.known
    assert b"".join(pieces) == TEXT
    assert not encoding.strip(" identy") or max(map(len, pieces)) <= 64 * 1024


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate, gzip"])
def test_what_cannot_be_unpacked_says_so(encoding: str) -> None:
    assert not Inflater(encoding).known


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", b"no gzip at all"), ("deflate", b"\x78\xff\xff\xff")])
def test_what_is_not_packed_as_it_says_is_an_error(encoding: str, packed: bytes) -> None:
    with pytest.raises(zlib.error):
        list(Inflater(encoding).pieces(packed))


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_what_unpacks_to_more_than_any_text_would_is_a_bomb_and_a_long_text_is_none(size: int) -> None:
    bomb, text = gzip.compress(bytes(20_000_000), 9), gzip.compress(b"".join(b"%d\n" % n for n in range(2_000_000)), 1)

    def unpacked(packed: bytes) -> int:
        inflater = Inflater("gzip")
        cuts = range(0, len(packed), size)
        return sum(len(piece) for at in cuts for piece in inflater.pieces(packed[at : at + size]))

    with pytest.raises(BombError):
        unpacked(bomb)
    assert unpacked(text) > 10_000_000
