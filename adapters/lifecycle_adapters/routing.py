"""Routing: where a request goes when the provider that was to answer it cannot.

models = {"anthropic": AnthropicMessages(model="..."), "openai": OpenAIResponses(model="...")}
hooks = Fallback("anthropic/claude-sonnet-4-5", "openai/gpt-5").hooks
agent = Agent(models, route="anthropic/claude-sonnet-4-5", hooks=hooks)

Which provider is asked in a step is a choice of `agent/model` listeners; this is for when the choice does not work out.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from lifecycle.errors import RouteError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import AgentHandle, RequestErrorPayload, RequestPayload, Retry
from lifecycle.vocabulary.failures import FailureCode
from lifecycle.vocabulary.requests import CallConfig, ModelSelection

ELSEWHERE = frozenset({
    FailureCode.RATE_LIMIT,
    FailureCode.OVERLOADED,
    FailureCode.QUOTA,
    FailureCode.SERVER,
    FailureCode.TIMEOUT,
    FailureCode.TRANSPORT,
    FailureCode.NO_ADAPTER,
})  # fmt: skip
"""The failures that another provider need not have. What is refused for what it says, the next one refuses too."""


class Fallback:
    """Asks the next route, in the open step, when one fails in a declared way; `hooks` is what an agent gets.

    The agent stays on a route for the rest of the turn; the next turn begins with the first one again. Which route
    served a request stands in its `request/header`, as for every request. Steps for which somebody chose another route
    than the first are left alone. Put it behind a retry policy (`retrying() + Fallback(...).hooks`) to have each route
    tried again before it is given up.

    Args:
        routes: At least two, as `provider/model` or as selections; an effort of a selection goes with it.
        on: The codes of the failures that lead to the next route.

    Raises:
        RouteError: for fewer than two routes, one without a provider or a model, or one that stands there twice.
    """

    def __init__(self, *routes: ModelSelection | str, on: Iterable[FailureCode | str] = ELSEWHERE) -> None:
        self.routes = tuple(map(_selection, routes))
        if len(set(self.routes)) < max(2, len(routes)):
            raise RouteError("a fallback needs at least two routes, each of them once")
        self._on = frozenset(map(str, on))
        self._places: WeakKeyDictionary[AgentHandle, tuple[int, int]] = WeakKeyDictionary()
        self.hooks = Hooks()
        self.hooks.listen("agent/request", self._route)
        self.hooks.listen("agent/request-error", self._move_on)

    async def _route(self, payload: RequestPayload, next: Next[CallConfig]) -> CallConfig:
        config = await next()
        place = self._place(payload.agent, payload.turn)
        if place == 0 or not _same(config, self.routes[0]):
            return config
        route = self.routes[place]
        effort = config.effort if route.effort is None else route.effort
        return config.model_copy(update={"provider": route.provider, "model": route.model, "effort": effort})

    async def _move_on(self, payload: RequestErrorPayload, next: Next[Retry | None]) -> Retry | None:
        place = self._place(payload.agent, payload.turn)
        fits = payload.failure.code in self._on and payload.provider == self.routes[place].provider
        if not fits or place + 1 == len(self.routes):
            return await next()
        self._places[payload.agent] = (payload.turn, place + 1)
        return Retry()

    def _place(self, agent: AgentHandle, turn: int) -> int:
        at, place = self._places.get(agent, (turn, 0))
        return place if at == turn else 0


def _selection(route: ModelSelection | str) -> ModelSelection:
    if isinstance(route, str):
        provider, _, model = route.partition("/")
        route = ModelSelection(provider=provider or None, model=model or None)
    if not route.provider or not route.model:
        raise RouteError("a route of a fallback names a provider and a model, written provider/model")
    return route


def _same(config: CallConfig, route: ModelSelection) -> bool:
    return (config.provider, config.model) == (route.provider, route.model)
