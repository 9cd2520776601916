"""Bodies of requests and responses, in pieces of bounded size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import httpx

_PIECE_BYTES = 64 * 1024


class Body(httpx.AsyncByteStream):
    """A request body in pieces, so that the write limit is one for progress and not for the whole.

    An iterator, not the generator that httpx would make of it: that one stays suspended when sending fails.
    """

    def __init__(self, body: bytes, whole: Callable[[], None]) -> None:
        """`whole` is called once all is sent."""
        self._body = memoryview(body)
        self._at = 0
        self._whole = whole

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        piece = bytes(self._body[self._at : self._at + _PIECE_BYTES])
        self._at += len(piece)
        if not piece:
            self._whole()
            raise StopAsyncIteration
        return piece


class Inflater:
    """Undoes a compression that nobody asked for, in pieces of bounded size."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding.strip().lower()
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if self.encoding in ("gzip", "x-gzip") else None

    @property
    def known(self) -> bool:
        return self._inflate is not None or self.encoding in ("", "identity")

    def pieces(self, read: bytes) -> Iterator[bytes]:
        """Raises zlib.error."""
        if self._inflate is None:
            yield read
            return
        if self._inflate.eof:
            return  # what follows would only pile up
        piece = read
        while read or len(piece) >= _PIECE_BYTES:  # a full piece: more may be waiting inside
            piece = self._inflate.decompress(read, _PIECE_BYTES)
            read = self._inflate.unconsumed_tail
            if piece:
                yield piece
