"""Bodies of requests and responses, in pieces of bounded size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx

_PIECE_BYTES = 64 * 1024
_GZIP_BEGINS = b"\x1f"
_LIKELY_RATIO = 200
_SLACK_BYTES = 4 * 1024 * 1024


class BombError(ValueError):
    """A compressed body holds more than any text that was worth sending."""

    def __init__(self) -> None:
        super().__init__(f"compressed, the answer was less than 1/{_LIKELY_RATIO} of its size")


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
        named = [part for name in encoding.split(",") if (part := name.strip().lower()) not in ("", "identity")]
        self.known = named in ([], ["gzip"], ["x-gzip"], ["deflate"])
        """Whether the compression, if there is one, can be undone."""
        self._packed, self._gzip = bool(named), named != ["deflate"]
        self._inflate: Any = None
        self._room = _SLACK_BYTES

    def pieces(self, read: bytes) -> Iterator[bytes]:
        """Raises zlib.error or BombError."""
        if not self._packed:
            yield read
            return
        piece = b""
        self._room += _LIKELY_RATIO * len(read)
        while read or len(piece) >= _PIECE_BYTES:  # a full piece: more may be waiting inside
            if self._inflate is None or self._inflate.eof:
                if self._inflate is not None and not (self._gzip and read.startswith(_GZIP_BEGINS)):
                    return  # no further member: it would only pile up
                self._inflate = zlib.decompressobj(self._window(read[0]))
            piece = self._inflate.decompress(read, _PIECE_BYTES)
            read = self._inflate.unconsumed_tail or self._inflate.unused_data
            self._room -= len(piece)
            if self._room < 0:
                raise BombError
            if piece:
                yield piece

    def _window(self, first: int) -> int:
        """zlib's name for the format. What servers call `deflate` begins with a head of zlib's, or has none."""
        if self._gzip:
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if first & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
