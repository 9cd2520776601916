"""The model seam: what an adapter must offer, and the registry that binds a call to the adapter that prepared it.

Failures of an adapter (selection, dispatch, iteration) become a terminal chunk here (STR-04), so that the driver
has one way to see a failed request. Failures of hooks never pass through here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from lifecycle.errors import InvalidPreparedCallError, ModelError, RouteError
from lifecycle.vocabulary.chunks import Chunk, Finish, FinishKind
from lifecycle.vocabulary.failures import Failure, FailureCode, failure_of
from lifecycle.vocabulary.requests import CallConfig, ModelSelection, Request, SystemUpdate
from lifecycle.vocabulary.values import freeze

from .cancellation import failure_in
from .signal import CancelSignal

log = logging.getLogger("lifecycle")


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that an adapter is ready to make.

    Args:
        config: The configuration with everything filled in that the adapter decided by itself.
        open: Starts the stream. It is called at most once; the signal cancels it, and so does the scope around it.
        defaults: The fields of `config` that the adapter filled in (PRP-03).
        context_window: Tokens that fit; None if unknown.
        system_update: How the provider takes a changed prompt section.
        retry_policy: Anything that `agent/request-error` listeners of this provider understand.
    """

    config: CallConfig
    open: Callable[[Request, CancelSignal], AsyncIterator[Chunk]]
    defaults: tuple[str, ...] = ()
    context_window: int | None = None
    system_update: SystemUpdate = "rewrite"
    retry_policy: Any = None


@runtime_checkable
class Model(Protocol):
    """An adapter to one provider."""

    @property
    def provider(self) -> str:
        """The name under which it is chosen and logged."""
        ...

    @property
    def model(self) -> str | None:
        """The model that is chosen where nobody chooses another."""
        ...

    def prepare(self, config: CallConfig, signal: CancelSignal) -> PreparedCall | Awaitable[PreparedCall]:
        """Resolve defaults and capacity for the model that `config` names. Once per attempt (PRP-01).

        Raises:
            ModelError: if it cannot be called; the turn fails and nothing is admitted (PRP-04).
        """
        ...


class BoundCall:
    """A prepared call tied to the registration that resolved it; good for one stream (PRP-02)."""

    __slots__ = ("_used", "prepared")

    def __init__(self, prepared: PreparedCall) -> None:
        self.prepared = prepared
        self._used = False

    def stream(self, request: Request, signal: CancelSignal) -> AsyncIterator[Chunk]:
        """The chunks of `request`; the last one is always a finish or the end of an in-process stream.

        Raises:
            InvalidPreparedCallError: the second time, or for another configuration than the prepared one.
        """
        self.use(request)
        return _guarded(self.prepared.open, request, signal)

    def use(self, request: Request) -> None:
        """Take note that its stream is being opened. Raises as `stream`."""
        own = self.prepared.config
        if self._used or (request.config is not own and request.config != own):
            why = "was already used" if self._used else "was prepared for another configuration"
            raise InvalidPreparedCallError(
                Failure(message=f"the prepared call {why}; prepare again", code=FailureCode.INVALID_PREPARED_CALL.value)
            )
        self._used = True


async def _guarded(
    open_stream: Callable[[Request, CancelSignal], AsyncIterator[Chunk]], request: Request, signal: CancelSignal
) -> AsyncIterator[Chunk]:
    chunks: AsyncIterator[Chunk] | None = None
    try:
        chunks = open_stream(request, signal)
        async for chunk in chunks:
            if type(chunk) is Finish:
                yield whole(chunk)
                return
            yield chunk
    except BaseException as error:
        failure = failure_in(error)
        if failure is None:
            raise
        yield failing(failure, signal)
    finally:
        try:
            await close_stream(chunks)
        except Exception:  # the answer has been told by now, or its failure
            log.exception("the stream of the adapter %r could not be closed", request.config.provider)


def failing(error: BaseException, signal: CancelSignal) -> Finish:
    """The terminal chunk that a failure of an adapter becomes (STR-04)."""
    failure = failure_of(error)
    aborted = signal.fired or failure.code == FailureCode.ABORTED
    return Finish(FinishKind.ABORTED if aborted else FinishKind.ERROR, failure)


def whole(finish: Finish) -> Finish:
    """The finish with its replay state frozen: it is opaque, so nothing has looked at it before."""
    if finish.replay is None:
        return finish
    replay = freeze(finish.replay, "replay")
    return finish._replace(replay=replay if isinstance(replay, tuple) else None)


async def close_stream(chunks: AsyncIterator[Chunk] | None) -> None:
    """Close a stream that was not read to its end; a plain iterator has nothing to close."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()


@lru_cache(maxsize=64)
def _selection(provider: str, model: str | None) -> ModelSelection:
    """The default selection of an only model: checked once, and shared by all agents on it."""
    return ModelSelection(provider=provider, model=model)


class Models:
    """The adapters that an agent may call, by provider name."""

    __slots__ = ("_models", "selection")

    def __init__(self, models: Model | Mapping[str, Model], route: ModelSelection | str | None = None) -> None:
        """`route` is a selection, or `provider/model`; None takes the only model's own."""
        for one in models.values() if isinstance(models, Mapping) else (models,):
            if isinstance(one, type) or not hasattr(one, "prepare"):
                raise TypeError(f"an agent's model is an adapter, or several by provider name; {one!r:.80} is none")
        self._models: dict[str, Model] = dict(models) if isinstance(models, Mapping) else {models.provider: models}
        self.selection = self._default(route)

    def _default(self, route: ModelSelection | str | None) -> ModelSelection:
        if isinstance(route, ModelSelection):
            return route
        if isinstance(route, str):
            provider, slash, model = route.partition("/")
            if not (provider and slash and model):
                raise RouteError(f"a route is written provider/model, not {route!r}")
            return ModelSelection(provider=provider, model=model)
        if len(self._models) == 1:
            ((name, only),) = self._models.items()
            return _selection(name, only.model)
        return ModelSelection()

    def register(self, provider: str, model: Model) -> None:
        """Put `model` under a provider's name; calls that are already prepared keep the adapter they have."""
        self._models[provider] = model

    def unregister(self, provider: str) -> None:
        """Take a provider away; the same holds."""
        self._models.pop(provider, None)

    def prepare_call(self, config: CallConfig, signal: CancelSignal) -> BoundCall | Awaitable[BoundCall]:
        """Bind a call for `config` to its adapter.

        Raises:
            RouteError: if `config` names no provider or no model (REQ-03).
            ModelError: with code NO_ADAPTER if nobody serves the provider.
        """
        if not config.provider or not config.model:
            missing = "provider" if not config.provider else "model"
            raise RouteError(
                f"the call configuration names no {missing}; give the agent a route, or choose one in "
                "'agent/model' or 'agent/request'"
            )
        model = self._models.get(config.provider)
        if model is None:
            known = ", ".join(sorted(self._models)) or "none"
            raise ModelError(
                Failure(
                    message=f"no adapter serves the provider {config.provider!r}; there are: {known}",
                    code=FailureCode.NO_ADAPTER.value,
                    retryable=False,
                )
            )
        prepared = model.prepare(config, signal)
        return BoundCall(prepared) if isinstance(prepared, PreparedCall) else _bind(prepared)


async def _bind(prepared: Awaitable[PreparedCall]) -> BoundCall:
    return BoundCall(await prepared)
