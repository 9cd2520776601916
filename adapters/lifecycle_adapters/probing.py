"""What a server speaks, asked without any cost: an empty request, which it refuses, and the list of its models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import httpx

from . import http_failures
from .decoding import count_in, dict_in, dicts_in, json_object, text_in
from .http_clients import certificates, client_of
from .http_failures import Site

_SECONDS = 10.0
_LONGEST_BODY = 8 * 1024 * 1024
_UNKNOWN_PATH = frozenset({404, 405, 501})
_CONTEXT_FIELDS = (
    "context_length",
    "context_window",
    "max_model_len",
    "max_context_length",
    "max_input_tokens",
    "n_ctx",
)


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server lists, with the tokens that fit, where it says so."""

    id: str
    context_window: int | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a server speaks a wire, and under which base URL; `why` says what it answered instead."""

    speaks: bool
    base_url: str
    why: str = ""
    models: tuple[Served, ...] = ()


async def probe(base: httpx.URL, path: str, headers: Mapping[str, str], site: Site) -> Probe:
    """Ask at `base`, and below `/v1` if there is nothing there. No redirect is followed.

    Raises:
        ModelError: if the environment names a proxy or certificates that cannot be used.
    """
    bases = [base] if "/v1" in base.path else [base, base.copy_with(path=base.path.rstrip("/") + "/v1")]
    why = ""
    async with client_of(certificates(), timeout=_SECONDS, follow_redirects=False) as client:
        for tried in bases:
            url = tried.copy_with(path=tried.path.rstrip("/") + path)
            try:
                with anyio.fail_after(_SECONDS):
                    status, body = await _asked(client, "POST", url, headers)
            except TimeoutError:
                return Probe(False, str(base), f"{site.name} did not answer within {_SECONDS:g} seconds")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                phase = f"after {_SECONDS:g} seconds"
                wrong = error if isinstance(error, httpx.HTTPError) else httpx.UnsupportedProtocol(str(error))
                return Probe(False, str(base), http_failures.of_exception(site, wrong, phase).message)
            said = json_object(body)
            why = f"POST {url.copy_with(query=None)} gave HTTP {status}"
            if status in _UNKNOWN_PATH or 300 <= status < 400 or (said is None and status < 500):
                continue
            models = await _models(client, tried, headers)
            return Probe(True, str(tried.copy_with(query=None)), why, models)
    return Probe(False, str(base.copy_with(query=None)), why)


async def _models(client: httpx.AsyncClient, base: httpx.URL, headers: Mapping[str, str]) -> tuple[Served, ...]:
    """What it lists; nothing where it does not, or not without a key."""
    try:
        with anyio.fail_after(_SECONDS):
            url = base.copy_with(path=base.path.rstrip("/") + "/models")
            status, body = await _asked(client, "GET", url, headers)
    except (TimeoutError, httpx.HTTPError):
        return ()
    said = json_object(body) if status == 200 else None
    return tuple(_served(said)) if said is not None else ()


def _served(said: dict[str, Any]) -> Iterator[Served]:
    for model in dicts_in(said, "data"):
        holders = (model, dict_in(model, "meta"), dict_in(model, "top_provider"))
        sizes = [count_in(holder, field) for holder in holders for field in _CONTEXT_FIELDS]
        if text_in(model, "id"):
            yield Served(text_in(model, "id"), next((size for size in sizes if size), None))


async def _asked(client: httpx.AsyncClient, method: str, url: httpx.URL, headers: Mapping[str, str]) -> tuple[int, str]:
    content = b"{}" if method == "POST" else None
    body = bytearray()
    async with client.stream(method, url, headers=headers, content=content) as response:
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > _LONGEST_BODY:
                break
        return response.status_code, body.decode("utf-8", "replace")
