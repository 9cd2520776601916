"""HTTP clients, with the certificates and proxies that the environment names; what is wrong there is a ModelError."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any

import httpx

from lifecycle.errors import ModelError
from lifecycle.vocabulary.failures import Failure, FailureCode

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class Connections:
    """Where the connections of an adapter come from.

    Between `open` and `close`, or with the caller's own client, they are kept for the next request. Otherwise each
    request makes and closes its own, so that an adapter that nobody closes leaves nothing behind.
    """

    def __init__(self, shared: httpx.AsyncClient | None = None) -> None:
        self._shared = shared
        self._own: httpx.AsyncClient | None = None
        self._tls: SSLContext | None = None

    def open(self) -> None:
        if self._shared is None and self._own is None:
            self._own = self._client()

    async def close(self) -> None:
        """Close what `open` opened; a client of the caller's stays open."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx.AsyncClient]:
        kept = self._shared or self._own
        if kept is not None:
            yield kept
            return
        async with self._client() as own:
            yield own

    def _client(self) -> httpx.AsyncClient:
        if self._tls is None:
            self._tls = certificates()  # some 20 ms of reading them: once
        return client_of(self._tls)


def certificates() -> SSLContext:
    """Whom to trust. Raises ModelError if the environment names certificates that cannot be read."""
    try:
        return httpx.create_ssl_context()
    except OSError as wrong:
        named = " or ".join(name for name in _CERTIFICATES if os.environ.get(name)) or "the system"
        why = wrong.strerror or type(wrong).__name__
        raise _unusable(
            f"the certificates of {named} cannot be read ({why}); correct the variable, or unset it"
        ) from None


def client_of(tls: SSLContext, **options: Any) -> httpx.AsyncClient:
    """A client that goes by the proxies of the environment. Raises ModelError if they cannot be used."""
    try:
        return httpx.AsyncClient(verify=tls, **options)
    except ImportError:
        why = "wants an extra of httpx: pip install 'httpx[socks]'"
        raise _unusable(f"the proxy of {proxies()} {why}, or name one that begins with http://") from None
    except (ValueError, httpx.InvalidURL):  # with the URL in their words, and in that a password
        raise _unusable(f"the proxy of {proxies()} is no URL of one; it looks like http://127.0.0.1:3128") from None


def proxies() -> str:
    """The variables of the environment that name a proxy; empty if none does."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    return " or ".join(name for name, value in os.environ.items() if name.lower() in names and value)


def _unusable(message: str) -> ModelError:
    return ModelError(Failure(message=message, code=FailureCode.INVALID_REQUEST.value, retryable=False))
