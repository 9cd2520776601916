"""Model selection: a host chooses another route at any time; it holds from the next step boundary on (STB-03)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from lifecycle.errors import PolicyError, RouteError
from lifecycle.services.hooks import Hooks
from lifecycle.services.listeners import Next
from lifecycle.services.points import SessionStartPayload, StepPayload
from lifecycle.vocabulary.requests import ModelSelection

from .checks import check_kind
from .narration import Narration


class ModelSwitch:
    """The routes that a host offers, and which of them is chosen. One for each agent.

        switch = ModelSwitch({"fast": ModelSelection(model="small"), "deep": ModelSelection(effort="high")})
        agent = Agent(..., hooks=switch.hooks)
        switch.select("deep")

    A choice while a step is open waits for the next one, so that all attempts of a step use one route; the model is
    told of the switch once.

    Args:
        routes: What can be chosen, by name. What a route leaves open stays as the agent's own selection has it.

    Raises:
        PolicyError: if there are no routes, or one changes nothing.
    """

    def __init__(self, routes: Mapping[str, ModelSelection]) -> None:
        if not routes:
            raise PolicyError("ModelSwitch: there are no routes to choose from; name at least one")
        for name, route in routes.items():
            check_kind(self, f"routes[{name!r}]", route, ModelSelection, "a ModelSelection")
        empty = [name for name, route in routes.items() if route == ModelSelection()]
        if empty:
            raise PolicyError(f"ModelSwitch: the route {empty[0]!r} names neither provider, model nor effort")
        self.routes = MappingProxyType(dict(routes))
        self.hooks = Hooks(name="model-switch")
        self.pending: str | None = None
        """The choice that waits for the next step boundary."""
        self._narration: Narration[str | None] = Narration(self.hooks, "model-switch", self._words, None)
        self.hooks.listen("agent/session-start", self.recall)
        self.hooks.listen("agent/step-boundary", self.commit)
        self.hooks.listen("agent/model", self.choose)

    @property
    def selected(self) -> str | None:
        """The choice that holds; None before the first one."""
        return self._narration.state

    def select(self, name: str) -> None:
        """Choose a route, from the next step boundary on. The last choice before it counts.

        Raises:
            RouteError: if there is no such route; nothing has changed.
        """
        if name not in self.routes:
            raise RouteError(f"there is no route {name!r} to select; there are: {', '.join(self.routes)}")
        self.pending = name

    def recall(self, payload: SessionStartPayload) -> None:
        """Go on with the route that a resumed session was on, as far as its model was told of it."""
        if payload.source == "resume":
            self._narration.recall(payload.agent.session, self.routes)

    def commit(self, payload: StepPayload) -> None:
        """Let the pending choice hold."""
        if self.pending is not None:
            self._narration.state, self.pending = self.pending, None

    async def choose(self, payload: StepPayload, next: Next[ModelSelection]) -> ModelSelection:
        """What the chosen route says, over what was chosen otherwise."""
        selection = await next()
        if self.selected is None:
            return selection
        route = self.routes[self.selected]
        told = {one.name: getattr(route, one.name) for one in dataclasses.fields(route)}
        return selection.model_copy(update={name: said for name, said in told.items() if said is not None})

    def _words(self, name: str | None) -> str:
        return f"From here on another model answers: {name}."
