"""All policies at once, in any order: no rule of the lifecycle is broken, and each still does what it is for."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from random import Random

import pytest

from lifecycle import AgentOptions, Hooks, ModelSelection, tool
from lifecycle.policies.compaction import CompactionOptions, compacting
from lifecycle.policies.context import Source, runtime_context
from lifecycle.policies.plan import EXIT, PlanMode
from lifecycle.policies.retry import RetryOptions, retrying
from lifecycle.policies.selection import ModelSwitch
from lifecycle.testing import Case, Reply, ScriptedModel, check_case, check_hooks
from lifecycle.vocabulary.failures import COMPLETED

from ..conformance.kit import scene
from . import test_compaction, test_context, test_limits, test_plan, test_retry, test_selection
from .kit import BACKENDS

BUILDERS = (
    test_retry.build_retrying,
    test_compaction.build_compacting,
    test_context.build_context,
    test_selection.build_switching,
    test_plan.build_planning,
    test_limits.build_limits,
)


def build_all() -> Hooks:
    """For the check of hooks: every policy, in the order in which the pages tell of them."""
    return reduce(add, [build() for build in BUILDERS])


def build_all_backwards() -> Hooks:
    return reduce(add, [build() for build in reversed(BUILDERS)])


@pytest.mark.parametrize("build", [build_all, build_all_backwards])
def test_all_policies_together_break_no_rule_of_the_lifecycle(build: Callable[[], Hooks]) -> None:
    report = check_hooks(build, examples=80, seed=7, backends=BACKENDS, invariants=[test_compaction.whole])
    report.coverage.require(
        verdicts=[
            ("agent/request-error", "Retry"),
            ("agent/pre-step", "Enter"),
            ("agent/model", "ModelSelection"),
            ("system-prompt/assemble", "PromptAssembly"),
        ]
    )


@pytest.mark.parametrize("build", [build_all, build_all_backwards])
def test_all_policies_together_break_no_rule_where_requests_overflow(build: Callable[[], Hooks]) -> None:
    for scenario in test_compaction.CASES:
        check_case(build, Case(scenario=scenario))


@pytest.mark.slow
@pytest.mark.parametrize("build", [*BUILDERS, test_compaction.build_compacting_alone], ids=lambda build: build.__name__)
def test_each_policy_by_itself_breaks_no_rule_in_a_long_search(build: Callable[[], Hooks]) -> None:
    check_hooks(build, examples=5_000, seed=1, backends=BACKENDS, invariants=[test_compaction.whole])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_all_policies_in_any_order_break_no_rule_in_a_long_search(seed: int) -> None:
    order = list(BUILDERS)
    Random(seed).shuffle(order)

    def build() -> Hooks:
        return reduce(add, [build() for build in order])

    check_hooks(build, examples=3_000, seed=seed, backends=BACKENDS, invariants=[test_compaction.whole])


@tool(kind="write")
def change() -> str:
    """Change."""
    return "changed " * 200


@pytest.mark.anyio
async def test_one_session_in_which_every_policy_has_its_say() -> None:
    plan = PlanMode(active=True)
    switch = ModelSwitch({"deep": ModelSelection(effort="high")})
    notes = ScriptedModel(otherwise=Reply(text="the notes"))
    hooks = (
        retrying(RetryOptions(chance=lambda: 0.0))
        + compacting(CompactionOptions(notes, summary_tokens=100))
        + runtime_context(Source("day", lambda agent: "It is Monday."))
        + switch.hooks
        + plan.hooks
    )
    model = ScriptedModel(
        Reply.failure("OVERLOADED"),
        Reply(calls=[(EXIT, {"plan": "change it"})]),
        *[Reply(calls=[("change", {})])] * 3,
        Reply.failure("CONTEXT_OVERFLOW"),
        Reply(text="done"),
        otherwise=Reply(text="ok"),
        context_window=5_000,
    )
    options = AgentOptions(approve=lambda payload, reason: True)
    async with scene(model=model, hooks=hooks, tools=[change, plan.tool], options=options) as s:
        await s.say("change it")
        switch.select("deep")
        await s.say("and again")

        assert s.reasons == [COMPLETED] * 2
        names = s.durable
        assert {"llm/retry", "llm/retry-started", "compaction/start", "compaction/summary"} <= {*names}
        assert [request.config.effort for request in s.model.requests][-1] == "high"
        assert not plan.active
        assert len(s.model.requests) == 8
