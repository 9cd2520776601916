"""Runtime context: told where it changed, asked for as seldom as may be, and never in the way of a turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import anyio
import pytest

from lifecycle import Hooks
from lifecycle.errors import PolicyError
from lifecycle.policies.context import Source, runtime_context
from lifecycle.proof.simulation import Backend
from lifecycle.services.points import AgentHandle
from lifecycle.session.surface import RUNTIME_CONTEXT
from lifecycle.testing import Gate, Reply, check_hooks
from lifecycle.vocabulary.events import Replace, UserMessageEvent
from lifecycle.vocabulary.failures import COMPLETED
from lifecycle.vocabulary.messages import text_of, user_message

from ..conformance.kit import Scene, scene
from .kit import BACKENDS, HOURS, each_backend, played, virtually, wrong

pytestmark = pytest.mark.anyio


def snapshots(s: Scene) -> list[str]:
    """What every snapshot said last, in order."""
    messages = [data.message for data in s.data(UserMessageEvent)]
    return [text_of(m).splitlines()[-1] for m in messages if m.source["kind"] == RUNTIME_CONTEXT]


class Weather:
    """A source whose answer is set from outside, and which counts."""

    def __init__(self, text: str | Exception | None = "rain") -> None:
        self.text, self.asked = text, 0

    def __call__(self, agent: AgentHandle) -> str | None:
        self.asked += 1
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


async def test_adm_08_a_context_is_told_behind_the_input_and_only_where_it_has_changed() -> None:
    weather = Weather()
    async with scene(hooks=runtime_context(Source("weather", weather))) as s:
        await s.say("one", "two")
        weather.text = "sun"
        await s.say("three")

        said = [text_of(data.message).splitlines()[-1] for data in s.data(UserMessageEvent)]
        assert said == ["one", "rain", "two", "three", "sun"]


async def test_adm_09_a_context_that_was_swallowed_is_told_again_and_one_that_is_gone_is_cleared_once() -> None:
    weather = Weather()
    async with scene(hooks=runtime_context(Source("weather", weather))) as s:
        await s.say("one")
        seqs = list(s.session.surface.nodes)
        s.session.append(
            UserMessageEvent(message=user_message("summary")),
            surface=Replace(start=seqs[0], end=seqs[-1]),
            sources=seqs,
        )
        await s.say("two")
        weather.text = None
        await s.say("three", "four")

        assert snapshots(s) == ["rain", "rain", "There is no runtime context any more."]


async def test_pre_08_a_changed_context_alone_opens_no_step() -> None:
    weather = Weather()
    async with scene(hooks=runtime_context(Source("weather", weather))) as s:
        s.hooks.listen("agent/pre-step", lambda payload, next: _emptied(next))
        await s.say("one")

        assert weather.asked == 0
        assert "step/start" not in s.durable


async def _emptied(next: Callable[[], Any]) -> Any:
    return (await next()).with_messages(())


async def test_a_source_that_fails_leaves_what_it_said_and_the_turn_alone(caplog: pytest.LogCaptureFixture) -> None:
    weather, clock = Weather(), Weather("noon")
    async with scene(hooks=runtime_context(Source("weather", weather), Source("clock", clock))) as s:
        await s.say("one")
        weather.text = OSError("no window")
        with caplog.at_level(logging.WARNING, "lifecycle"):
            await s.say("two")
        clock.text = "one o'clock"
        await s.say("three")

        assert s.reasons == [COMPLETED] * 3
        assert snapshots(s) == ["noon", "one o'clock"]
        assert "rain" in text_of(s.data(UserMessageEvent)[-1].message)
        assert caplog.messages[0] == "the runtime context 'weather' is as it was before: OSError: no window"


@each_backend
def test_c136_a_source_that_never_answers_is_given_up_and_named(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = [False, True, False]

    async def hang(agent: AgentHandle) -> str:
        if hanging.pop(0):
            await anyio.sleep_forever()
        return f"{len(hanging)} to come"

    s = played(backend, hooks=runtime_context(Source("slow", hang, most_seconds=3.0)), prompts=3)

    assert s.reasons == [COMPLETED] * 3
    assert snapshots(s) == ["2 to come", "0 to come"]
    assert caplog.messages == [
        "the runtime context 'slow' is as it was before: TimeoutError: it has not answered within 3 s"
    ]


async def test_c136_a_cancel_ends_the_wait_for_a_source_and_the_next_step_asks_again() -> None:
    gate, asked = Gate(), list[bool]()

    async def once(agent: AgentHandle) -> str:
        asked.append(True)
        await gate.go()
        return "known"

    async with scene(hooks=runtime_context(Source("slow", once, every_seconds=inf))) as s:
        s.agent.followup("one")
        await gate.reached()
        s.agent.cancel()
        await s.idle()
        assert [reason.kind for reason in s.reasons] == ["aborted"]
        gate.open()
        await s.say("two", "three")

        assert (snapshots(s), len(asked)) == (["known"], 2)


async def test_what_looks_like_a_variable_is_told_as_it_is() -> None:
    async with scene(hooks=runtime_context(Source("diff", lambda agent: r"see {{ model }} and \{{model}}"))) as s:
        await s.say("one")
        assert snapshots(s) == [r"see {{ model }} and \{{model}}"]


@each_backend
def test_a_source_is_asked_again_after_its_time_and_not_before(backend: Backend) -> None:
    seldom, once, always = Weather(), Weather(), Weather()

    async def slowly(agent: AgentHandle) -> str | None:
        await anyio.sleep(5)
        return always(agent)

    async def story() -> float:
        hooks = runtime_context(
            Source("seldom", seldom, every_seconds=60), Source("once", once, every_seconds=inf), Source("slow", slowly)
        )
        async with scene(hooks=hooks, seconds=HOURS) as s:
            await s.say("one", "two", "three")
            await anyio.sleep(60)
            await s.say("four")
        return anyio.current_time()

    assert virtually(story, backend) == pytest.approx(80)
    assert (seldom.asked, once.asked, always.asked) == (2, 1, 4)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (partial(Source, "", str), "a context needs a name"),
        (partial(Source, "a", str, every_seconds=-1.0), "Source 'a': every_seconds=-1.0 is no time"),
        (partial(Source, "a", str, every_seconds=float("nan")), "every_seconds=nan is no time"),
        (partial(Source, "a", wrong("Monday")), "Source 'a': text='Monday' is not a function that says it"),
        (partial(Source, "a", str, most_seconds=wrong("1")), "most_seconds='1' is not a number"),
        (partial(Source, "a", str, most_seconds=0.0), "most_seconds=0.0 leaves no time to answer"),
        (runtime_context, "there is no source"),
        (lambda: runtime_context(Source("a", str), Source("a", str)), "two sources are called 'a'"),
    ],
)
async def test_sources_that_cannot_work_are_refused_where_they_are_made(made: Callable[[], Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        made()
    assert said in str(refused.value)


def build_context() -> Hooks:
    """For the check of hooks: a context that changes in every second step, one that waits, and one that fails."""
    count = 0

    def turning(agent: AgentHandle) -> str:
        nonlocal count
        count += 1
        return f"half {count // 2}"

    async def waiting(agent: AgentHandle) -> str:
        await anyio.sleep(1)
        return "{{waited}}"

    def failing(agent: AgentHandle) -> str:
        raise OSError("never")

    return runtime_context(Source("turning", turning), Source("waiting", waiting), Source("failing", failing))


async def test_the_policy_answers_with_text_only(caplog: pytest.LogCaptureFixture) -> None:
    def nonsense(agent: AgentHandle) -> Any:
        return 3

    async with scene(Reply(text="ok"), hooks=runtime_context(Source("n", nonsense))) as s:
        await s.say("one")
        assert s.reasons == [COMPLETED]
        assert "it says 3, which is no text" in caplog.text


def test_the_policy_breaks_no_rule_of_the_lifecycle() -> None:
    report = check_hooks(build_context, examples=80, seed=7, backends=BACKENDS)
    report.coverage.require(verdicts=[("system-prompt/assemble", "PromptAssembly")])
