"""A lifecycle of a user's own, in the user's own project: extended, run, drawn, compared, and told where it is wrong.

Every command runs in a process of its own, with the project as its working directory and no file of ours edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..pictures.judge import parsed
from .child import LIFECYCLE, Ended, run

FLOW = """
from lifecycle.definition.effects import HOOKS, answer, hook
from lifecycle.definition.machine import Phase
from lifecycle.definition.step import CLOSE, Step
from lifecycle.definition.turn import Turn


class BudgetStep(Step):
    boundary = Step.boundary.but(hook("agent/budget", "serial", "may stop a costly turn"), *Step.boundary.does)


class ReviewedStep(BudgetStep):
    reviewing = Phase(hook("agent/review", "waterfall"), answer(HOOKS, "finish or revise"))
    finish = BudgetStep.arrows("finish").but(target=reviewing, emits=()) | reviewing.to(
        BudgetStep.ended, when="the reviewer approves", emits=CLOSE
    )
    revise = reviewing.to(BudgetStep.requesting, when="the reviewer asks again")


class ReviewedTurn(Turn):
    \"\"\"A turn whose answers are reviewed.\"\"\"

    stepping = Turn.stepping.but(runs=ReviewedStep)
"""
HOOKS = """
from lifecycle import HookPoint, Hooks
from lifecycle.services.points import POINTS, Mode, StepPayload

BUDGET = HookPoint("agent/budget", Mode.SERIAL, StepPayload)

def hooks():
    made = Hooks(points={**POINTS, BUDGET.name: BUDGET})
    made.listen("agent/budget", watch)
    made.listen("agent/turn-stopping", watch)
    return made

def watch(payload):
    print("watched", payload.turn)
"""
RUN = """
import anyio
from lifecycle import Agent, AgentOptions
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing import Reply, ScriptedModel
from mypkg.flow import ReviewedTurn
from mypkg.hooks import hooks

async def review(step):
    return "finish" if step.attempts == 3 else "revise"

async def main():
    options = AgentOptions(lifecycle=ReviewedTurn, performers={"agent/review": review})
    model = ScriptedModel(*(Reply(text=text) for text in ("first", "second", "third")))
    async with SqliteStore("sessions.db") as store, await store.create("mine") as session:
        async with Agent(model, hooks=hooks(), session=session, options=options) as agent:
            agent.followup("go")
            await agent.when_idle()

anyio.run(main)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "mypkg"
    package.mkdir()
    for name, source in (("__init__", ""), ("flow", FLOW), ("hooks", HOOKS), ("run", RUN)):
        (package / f"{name}.py").write_text(source, encoding="utf-8")
    return tmp_path


def lifecycle(project: Path, *args: str) -> Ended:
    return run(*LIFECYCLE, *args, cwd=project)


def sentence(ended: Ended, *parts: str) -> None:
    """It was refused, in one sentence that holds these parts."""
    assert (ended.code, ended.out) == (2, "")
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle ")
    for part in parts:
        assert part in said


# -- what works -------------------------------------------------------------------------------------------------------


def test_it_is_drawn_with_its_hooks(project: Path) -> None:
    ended = lifecycle(
        project, "diagrams", "mypkg.flow:ReviewedTurn", "--hooks", "mypkg.hooks:hooks", "--view", "overview"
    )

    assert (ended.code, ended.err) == (0, "")
    parsed(ended.out)
    lines = [line.strip() for line in ended.out.splitlines()]
    at = lines.index("Driver->>Hooks: agent/budget serial may stop a costly turn")
    assert lines[at + 1] == "Note over Hooks: 1. mypkg.hooks.watch"
    assert "loop the attempts of the request" in lines
    assert "Driver->>Hooks: agent/review waterfall" in lines


@pytest.mark.parametrize("view", ["full", "step", "tools", "cancel", "retry", "state"])
def test_every_view_of_it_is_a_picture(project: Path, view: str) -> None:
    ended = lifecycle(project, "diagrams", "mypkg.flow:ReviewedTurn", "--view", view)

    assert ended.code == 0
    parsed(ended.out)
    assert ("reviewing" in ended.out) or ("agent/review" in ended.out) or view in ("tools",)


def test_a_page_about_it_is_written_into_the_project_and_checked(project: Path) -> None:
    command = ("diagrams", "mypkg.flow:ReviewedTurn", "--hooks", "mypkg.hooks:hooks", "--output", "reviewed.md")
    assert lifecycle(project, *command).code == 0
    page = project / "reviewed.md"
    assert "A turn whose answers are reviewed." in page.read_text(encoding="utf-8")
    assert lifecycle(project, *command, "--check").code == 0

    flow = project / "mypkg" / "flow.py"
    flow.write_text(FLOW.replace("the reviewer approves", "nobody objects"), encoding="utf-8")
    stale = lifecycle(project, *command, "--check")

    assert stale.code == 1
    assert "+" in stale.out
    assert "nobody objects" in stale.out


def test_it_is_compared_with_ours(project: Path) -> None:
    ended = lifecycle(project, "diff", "Turn", "mypkg.flow:ReviewedTurn")

    listed, _, picture = ended.out.partition("\n\n```mermaid\n")
    assert (ended.code, ended.err) == (1, "")
    assert [line for line in listed.splitlines() if ".abort" not in line and ".fault" not in line][:7] == [
        "Step -> ReviewedStep",
        "  + effect boundary: Driver ->> Hooks: `agent/budget` serial may stop a costly turn (first)",
        "  ~ arrow tooling.finish: target: ended -> reviewing",
        "  - effect tooling.finish: Driver ->> Tools: dispose the step tool set",
        "  - effect tooling.finish: Driver ->> Session: `step/end`",
        "  + phase reviewing",
        "      + Driver ->> Hooks: `agent/review` waterfall",
    ]
    assert "Driver->>Hooks: + agent/review waterfall" in picture
    parsed(picture.removesuffix("```\n"))
    again = json.loads(lifecycle(project, "diff", "mypkg.flow:ReviewedTurn", "Turn", "--json").out)
    assert {change["sort"] for change in again["changes"]} == {"added", "removed", "changed"}


def test_it_runs_and_the_run_is_told_and_drawn(project: Path) -> None:
    ran = run(LIFECYCLE[0], "-m", "mypkg.run", cwd=project)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "watched 1\nwatched 1\n"

    told = lifecycle(project, "replay", "mine", "--store", "sessions.db")
    drawn = lifecycle(
        project, "replay", "mine", "--store", "sessions.db", "--sequence", "--lifecycle", "mypkg.flow:ReviewedTurn"
    )

    assert "1 step, 3 requests" in told.out
    assert drawn.code == 0
    parsed(drawn.out)
    assert drawn.out.count("Driver->>LLM") == 3


# -- what is wrong ----------------------------------------------------------------------------------------------------

MISTAKES = {
    "a guard over an unknown fact": (
        'approve = reviewing.to(Step.tooling, cond="aproved")',
        ["Mine.approve", "'aproved'", "StepFacts"],
    ),
    "two arrows of one event without a guard": (
        "approve = reviewing.to(Step.tooling) | reviewing.to(Step.ended)",
        ["Mine.approve", "without a guard"],
    ),
    "an unreachable phase": (
        "approve = reviewing.to(Step.tooling)\n    lost = Phase()\n    find = lost.to(Step.ended)",
        ["Mine", "lost", "reach"],
    ),
    "a phase that nobody leaves": ("succeed = Step.arrows('succeed').but(target=reviewing)", ["Mine.reviewing"]),
    "an event that there is not": ("succeed = Step.arrows('suceed')", ["Step", "'suceed'", "succeed"]),
    "a guard that is no expression": (
        'approve = reviewing.to(Step.tooling, cond="a b")',
        ["Mine.approve", "'a b'"],
    ),
    "a phase of another lifecycle": ("approve = reviewing.to(Other.end)", ["Mine.approve", "Other.end"]),
    "a name of the library": ("approve = reviewing.to(Step.tooling)\n    states = Phase()", ["Mine.states"]),
}


@pytest.mark.parametrize("what", MISTAKES)
@pytest.mark.parametrize("command", [["diagrams", "mypkg.wrong:Mine"], ["diff", "Step", "mypkg.wrong:Mine"]])
def test_a_mistake_is_one_sentence_that_names_class_and_phase(project: Path, what: str, command: list[str]) -> None:
    body, parts = MISTAKES[what]
    (project / "mypkg" / "wrong.py").write_text(
        "from lifecycle.definition.machine import Lifecycle, Phase\n"
        "from lifecycle.definition.step import Step\n\n"
        "class Other(Lifecycle):\n    begin = Phase(initial=True)\n    end = Phase(final=True)\n"
        "    go = begin.to(end)\n\n"
        f"class Mine(Step):\n    reviewing = Phase()\n    revise = Step.requesting.to(reviewing)\n    {body}\n",
        encoding="utf-8",
    )

    sentence(lifecycle(project, *command), *parts)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["diagrams", "mypkg.flow:ReviewedTrun"], ["no 'ReviewedTrun'", "'ReviewedTurn'"]),
        (["diagrams", "mypkg.flaw:ReviewedTurn"], ["mypkg.flaw"]),
        (["diagrams", "mypkg.flow:hook"], ["no lifecycle"]),
        (["diagrams", "Turn", "--view", "ful"], ["'ful'", "full"]),
        (["diagrams", "Turn", "--format", "pgn"], ["'pgn'", "png"]),
        (["diagrams", "Turn", "--lang", "fr"], ["'fr'", "zh"]),
        (["diff", "Turn", "mypkg.flow:ReviewedTrun"], ["no 'ReviewedTrun'"]),
        (["replay", "none"], ["'none'"]),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(project: Path, args: list[str], parts: list[str]) -> None:
    sentence(lifecycle(project, *args), *parts)


def broken() -> Iterator[tuple[list[str], str]]:
    yield ["diagrams", "mypkg.broken:Mine"], "lifecycle diagrams: "
    yield ["diff", "Turn", "mypkg.broken:Mine"], "lifecycle diff: "


@pytest.mark.parametrize(("args", "name"), list(broken()))
def test_a_module_that_does_not_import_shows_its_own_traceback_and_none_of_ours(
    project: Path, args: list[str], name: str
) -> None:
    (project / "mypkg" / "broken.py").write_text("def helper():\n    return 1 / 0\n\nhelper()\n", encoding="utf-8")

    ended = lifecycle(project, *args)

    assert (ended.code, ended.out) == (2, "")
    assert [line for line in ended.err.splitlines() if line.lstrip().startswith("File ")] == [
        f'  File "{project}/mypkg/broken.py", line 4, in <module>',
        f'  File "{project}/mypkg/broken.py", line 2, in helper',
    ]
    assert "ZeroDivisionError: division by zero" in ended.err
    assert ended.err.splitlines()[-1].startswith(name)


def test_a_guard_over_a_fact_that_no_run_tells_is_refused_when_the_agent_is_made(project: Path) -> None:
    (project / "mypkg" / "own_fact.py").write_text(
        "from dataclasses import dataclass\n"
        "from lifecycle import Agent, AgentOptions\n"
        "from lifecycle.definition.step import Step, StepFacts\n"
        "from lifecycle.testing import ScriptedModel\n\n"
        "@dataclass(frozen=True, slots=True)\nclass Facts(StepFacts):\n    ready: bool = False\n\n"
        "class Mine(Step):\n    facts = Facts\n    bind = Step.claimed.to(Step.boundary, cond='ready')\n\n"
        "try:\n    Agent(ScriptedModel(), options=AgentOptions(lifecycle=Mine))\n"
        "except Exception as refused:\n    print(type(refused).__name__, refused)\n",
        encoding="utf-8",
    )

    ended = run(LIFECYCLE[0], "-m", "mypkg.own_fact", cwd=project)

    assert ended.out.startswith("DefinitionError Mine.claimed: the guard of 'bind' reads 'ready', which no run tells")
