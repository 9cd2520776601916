"""`lifecycle replay`: a recorded session as a timeline, as JSON, and as the sequence diagram of that very run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from lifecycle import Agent, tool
from lifecycle.commands.output import cells
from lifecycle.session.sqlite import SqliteStore
from lifecycle.testing import Reply, ScriptedModel
from lifecycle.vocabulary import events as ev
from lifecycle.vocabulary.chunks import Finish, FinishKind, TextDelta, Usage
from lifecycle.vocabulary.failures import COMPLETED, USER_CANCEL, Aborted, Errored, Failure
from lifecycle.vocabulary.messages import AssistantMessage, ToolResultBlock, UserMessage, text, user_message
from lifecycle.vocabulary.stream import StreamRecorder, TimedStream
from lifecycle.vocabulary.values import freeze_object

from ..pictures.judge import parsed
from .child import LIFECYCLE, Ended, here, run

NOON = 1_700_000_000_000
LOGS = Path(__file__).resolve().parents[3] / "shared" / "dsh-logs"
Timed = tuple[int, ev.EventData]
"""A moment, in milliseconds after noon, and what was recorded then."""


def stream(*times: int, failure: Failure | None = None) -> TimedStream:
    """Chunks of text at some times, and the end of a failed one."""
    recorder = StreamRecorder()
    for time in times:
        recorder.add(TextDelta(0, "x"), NOON + time)
    if failure is not None:
        recorder.add(Finish(FinishKind.ERROR, failure), NOON + (times[-1] if times else 0))
    return recorder.stream()


def answered(at: int, *chunks: int, step: int = 1, said: str = "fine", interrupted: bool = False) -> Timed:
    message = AssistantMessage(id=f"a{at}", content=text(said))
    usage = Usage(input_tokens=100, output_tokens=7)
    cut: Any = {"interrupted": True, "finish": FinishKind.ABORTED} if interrupted else {"finish": FinishKind.STOP}
    return at, ev.AssistantMessageEvent(turn=1, step=step, message=message, stream=stream(*chunks), usage=usage, **cut)


def called(at: int, id: str, name: str = "read") -> Timed:
    return at, ev.ToolCallEvent(turn=1, step=1, call_id=id, name=name, arguments="{}")


def gave(at: int, id: str, error: str = "") -> Timed:
    block = ToolResultBlock(tool_call_id=id, content=text("result"), is_error=bool(error))
    message = UserMessage(id=f"r{id}", content=(block,), source=freeze_object({"kind": "tool", "callId": id}, "source"))
    fault = ev.ToolFault(code=error) if error else None
    return at, ev.ToolResultEvent(turn=1, step=1, message=message, error=fault)


PROMPT = user_message("Water the tomatoes")
BEGUN: Sequence[Timed] = (
    (0, ev.InboxSpliced(target="next-turn", start=0, inserted=(PROMPT,))),
    (0, ev.TurnStart(turn=1)),
    (0, ev.InboxSpliced(target="next-turn", start=0, removed_count=1)),
    (10, ev.StepStart(turn=1, step=1)),
    (10, ev.UserMessageEvent(message=PROMPT)),
)
OVERLOADED = Failure(message="too many tomatoes", code="OVERLOADED")
RETRIED: Sequence[Timed] = (
    *BEGUN,
    (200, ev.AssistantAttempt(turn=1, step=1, stream=stream(100, failure=OVERLOADED))),
    (200, ev.LlmRetry(retry_id="r", turn=1, step=1, provider="p", retry=1, delay_ms=100, failure=OVERLOADED)),
    (300, ev.LlmRetryStarted(retry_id="r", turn=1, step=1, retry=1)),
    answered(600, 400, 600),
    called(600, "c1"),
    called(610, "c2", "write"),
    gave(900, "c1"),
    gave(1000, "c2", "NOT_FOUND"),
    (1000, ev.StepEnd(turn=1, step=1)),
    (1000, ev.TurnEnd(turn=1, reason=COMPLETED)),
)


def lines(events: Iterable[Timed]) -> list[str]:
    return [ev.Event(seq, NOON + at, data).encode() for seq, (at, data) in enumerate(events)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def write(log: Path, events: Iterable[Timed], end: str = "\n") -> None:
    log.write_text("\n".join(lines(events)) + end, encoding="utf-8")


def replay(log: Path, events: Iterable[Timed], *args: str) -> list[str]:
    """The lines that are told of a log."""
    write(log, events)
    ended = here("replay", log, *args)
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def drawn(log: Path, events: Iterable[Timed]) -> list[str]:
    """The lines of the picture below the participants, after a Mermaid parser has read it."""
    told = replay(log, events, "--sequence")
    parsed("\n".join(told))
    return [line.strip() for line in told if not line.startswith(("sequenceDiagram", "  participant"))]


def sentence(ended: Ended, *parts: str) -> None:
    """It was refused, in one sentence."""
    assert (ended.code, ended.out) == (2, "")
    (said,) = ended.err.splitlines()
    assert said.startswith("lifecycle replay: ")
    for part in parts:
        assert part in said


# -- the timeline -----------------------------------------------------------------------------------------------------


def test_a_turn_with_a_retry_and_overlapping_tools(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "84")

    assert replay(log, RETRIED) == [
        "turn 1 completed after 1.0 s",
        "  1 step, 2 requests (1 failed), 2 tool calls (1 failed), 100 tokens in, 7 out",
        "  > Water the tomatoes",
        "  step 1                             990 ms ----------------------------------------",
        "    attempt 1 failed (OVERLOADED)    190 ms ....####",
        "    waits for retry 1                100 ms         ~~~~",
        "    attempt 2 100 in, 7 out          300 ms             ....########",
        "    read                             300 ms                         ============",
        "    write failed (NOT_FOUND)         390 ms                         ================",
        "",
        "- step   . waits for the answer   # the answer comes   = tool   ~ waits to retry",
        "* other event",
    ]


@pytest.mark.parametrize("columns", [24, 40, 80, 200])
def test_no_line_is_wider_than_asked_for(log: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = user_message("番茄 " * 100)
    failed = Errored(error=Failure(message="so sorry " * 40, code="SERVER"))

    told = replay(
        log,
        [*RETRIED[:4], (10, ev.UserMessageEvent(message=long)), *RETRIED[5:-1], (1, ev.TurnEnd(turn=1, reason=failed))],
    )

    assert max(map(cells, told)) <= columns


def test_on_a_terminal_bars_are_drawn_as_wide_as_it_is(log: Path) -> None:
    write(log, RETRIED)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    done = subprocess.run([*LIFECYCLE, "replay", log], stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(theirs)
    told = b""
    try:
        while piece := os.read(ours, 65536):
            told += piece
    except OSError:  # all of it was read
        pass
    os.close(ours)

    shown = told.decode().splitlines()
    assert done.returncode == 0
    assert any("█" in line for line in shown)
    assert max(map(cells, shown)) == 60
    assert "\x1b" not in told.decode()


def test_a_cancelled_turn_and_one_that_is_open(log: Path) -> None:
    told = replay(
        log,
        [
            *BEGUN,
            answered(50, 40, interrupted=True),
            (60, ev.StepEnd(turn=1, step=1)),
            (60, ev.TurnEnd(turn=1, reason=Aborted(reason=USER_CANCEL))),
            (70, ev.TurnStart(turn=2)),
            (70, ev.StepStart(turn=2, step=1)),
            called(80, "c"),
        ],
    )

    assert told[0] == "turn 1 was cancelled by the user after 60 ms"
    assert "attempt 1 interrupted" in told[4]
    assert told[6] == "turn 2 has no end"
    assert [line.split()[0] for line in told[8:10]] == ["step", "read"]


def test_a_clock_that_was_set_back_harms_nothing(log: Path) -> None:
    told = replay(
        log, [(5_000, ev.TurnStart(turn=1)), *BEGUN[3:], answered(1, 0), (2, ev.TurnEnd(turn=1, reason=COMPLETED))]
    )

    assert told[0] == "turn 1 completed after 0 ms"


def test_a_log_without_times_counts_events() -> None:
    if not LOGS.exists():
        pytest.skip("no recorded logs of somebody else here")
    told = here("replay", LOGS / "acp-agent__cancel-tool-calls__session.jsonl").out.splitlines()

    assert told[0] == "turn 1 was cancelled by the user"
    assert [line.split("  ")[-2].strip() for line in told if "bash" in line] != []
    assert any("1 event" in line for line in told)


def test_a_log_without_a_turn_says_so(log: Path) -> None:
    assert replay(log, BEGUN[:1]) == ["no turn was run"]


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_has_a_turn_a_line(log: Path) -> None:
    (line,) = replay(log, RETRIED, "--json")

    turn = json.loads(line)
    (step,) = turn.pop("steps")
    assert turn == {
        "turn": 1,
        "unit": "ms",
        "began": NOON,
        "ended": NOON + 1000,
        "reason": {"kind": "completed"},
        "prompt": "Water the tomatoes",
        "inputTokens": 100,
        "outputTokens": 7,
    }
    assert step["attempts"][0] == {
        "number": 1,
        "began": NOON + 10,
        "firstChunk": NOON + 100,
        "ended": NOON + 200,
        "outcome": "failed",
        "failure": "OVERLOADED: too many tomatoes",
        "chunks": 2,
        "inputTokens": 0,
        "outputTokens": 0,
    }
    assert step["attempts"][1]["began"] == NOON + 300
    assert step["calls"][1] == {
        "id": "c2",
        "name": "write",
        "arguments": "{}",
        "began": NOON + 610,
        "ended": NOON + 1000,
        "error": "NOT_FOUND",
    }


# -- the picture ------------------------------------------------------------------------------------------------------


def test_a_run_is_drawn_with_its_times_its_retry_and_its_overlapping_tools(log: Path) -> None:
    assert drawn(log, RETRIED) == [
        "Note over Driver,Session: turn 1 completed after 1.0 s",
        "User->>Agent: next-turn: Water the tomatoes",
        "Agent-->>SDK: agent/inbox/spliced next-turn [+0.000 s]",
        "Driver->>Session: turn/start 1 [+0.000 s]",
        "Driver-->>SDK: agent/inbox/spliced next-turn [+0.000 s]",
        "Driver->>Session: step/start 1 [+0.010 s]",
        "Driver->>Session: user/message Water the tomatoes [+0.010 s]",
        "Driver->>LLM: bound prepared call through llm/stream waterfall attempt 1",
        "LLM-->>Driver: failed (OVERLOADED) after 190 ms",
        "Driver->>Session: assistant/attempt [+0.200 s]",
        "Hooks->>Session: llm/retry 1, after 0.1 s [+0.200 s]",
        "Hooks->>Session: llm/retry-started 1 [+0.300 s]",
        "Driver->>LLM: bound prepared call through llm/stream waterfall attempt 2",
        "LLM-->>Driver: StreamChunk* 2 after 300 ms",
        "Driver->>Session: assistant/message fine [+0.600 s]",
        "par read (+0.600 s to +0.900 s)",
        "Driver->>Session: tool/call read {} [+0.600 s]",
        "Driver->>Tools: ordered pre, concurrent execute read",
        "Tools-->>Driver: read ended after 300 ms",
        "Driver->>Session: tool/result [+0.900 s]",
        "and write (+0.610 s to +1.000 s)",
        "Driver->>Session: tool/call write {} [+0.610 s]",
        "Driver->>Tools: ordered pre, concurrent execute write",
        "Tools-->>Driver: write failed (NOT_FOUND) after 390 ms",
        "Driver->>Session: tool/result error [+1.000 s]",
        "end",
        "Driver->>Session: step/end 1 [+1.000 s]",
        "Driver->>Session: turn/end completed [+1.000 s]",
    ]


def test_calls_that_come_one_after_another_are_not_side_by_side(log: Path) -> None:
    told = drawn(log, [*BEGUN, answered(20), called(20, "a"), gave(30, "a"), called(30, "b"), gave(40, "b")])

    assert [line for line in told if line.startswith("par")] == []
    assert [line.split(": ")[1].split()[0] for line in told if "Tools" in line] == ["ordered", "read"] * 2


def test_what_was_recorded_while_calls_overlap_has_a_branch_of_its_own(log: Path) -> None:
    steered = ev.InboxSpliced(target="next-step", start=0, inserted=(user_message("stop; end"),))
    told = drawn(
        log, [*BEGUN, answered(20), called(20, "a"), called(20, "b"), (25, steered), gave(30, "a"), gave(40, "b")]
    )

    at = told.index("and meanwhile")
    assert told[at + 1 :] == [
        "User->>Agent: next-step: stop#59; end",
        "Agent-->>SDK: agent/inbox/spliced next-step [+0.025 s]",
        "end",
    ]


@pytest.mark.parametrize(
    ("events", "before"),
    [
        ([answered(50, 40, interrupted=True)], "LLM-->>Driver: StreamChunk* 1, interrupted after 40 ms"),
        (
            [answered(20), called(30, "a"), gave(40, "a", "ABORTED")],
            "Tools-->>Driver: read failed (ABORTED) after 10 ms",
        ),
        ([(30, ev.InboxSpliced(target="next-turn", start=0, removed_count=1, outcome="canceled"))], "Agent-->>SDK: "),
        ([], "Driver->>Session: step/end"),
    ],
)
def test_where_a_turn_was_cancelled_is_shown(log: Path, events: list[Timed], before: str) -> None:
    end: list[Timed] = [
        (60, ev.StepEnd(turn=1, step=1)),
        (60, ev.TurnEnd(turn=1, reason=Aborted(reason=USER_CANCEL))),
    ]
    told = drawn(log, [*BEGUN, *events, *end])

    at = told.index("Note over Agent,Driver: here the turn was cancelled by the user")
    assert told[at + 1].startswith(before)
    assert told.count(told[at]) == 1


def test_a_call_that_never_started_is_not_drawn_as_run(log: Path) -> None:
    told = drawn(log, [*BEGUN, answered(20), called(30, "a"), gave(30, "a", "ABORTED_BEFORE_DISPATCH")])

    assert [line for line in told if "Tools" in line] == []


def test_hostile_text_stays_text(log: Path) -> None:
    hostile = 'end\n%% "x"; #35; {a} `turn/end` \x1b[31m <script>'
    told = drawn(
        log, [*BEGUN[:4], (10, ev.UserMessageEvent(message=user_message(hostile))), answered(20, said=hostile)]
    )

    assert all("\x1b" not in line and "<script>" not in line for line in told)


def test_recorded_logs_of_an_earlier_revision_are_drawn_and_told() -> None:
    logs = sorted(LOGS.glob("*.jsonl"))
    if not logs:
        pytest.skip("no recorded logs of somebody else here")
    for path in logs:
        picture, timeline = here("replay", path, "--sequence"), here("replay", path)

        assert timeline.code == 0
        if "turn 1" in timeline.out:
            assert picture.code == 0
            parsed(picture.out)


# -- where it is kept -------------------------------------------------------------------------------------------------


def test_a_real_run_in_the_store(store: Path) -> None:
    async def work() -> None:
        begun: list[str] = []
        both = anyio.Event()

        @tool(parallel=True)
        async def read(path: str) -> str:
            """Reads, once two of its kind have begun."""
            begun.append(path)
            if len(begun) == 2:
                both.set()
            await both.wait()
            return path

        model = ScriptedModel(Reply(calls=[("read", {"path": "a"}), ("read", {"path": "b"})]), Reply(text="done"))
        async with SqliteStore(store) as kept, await kept.create("run-1") as session:
            with anyio.fail_after(5):
                async with Agent(model, tools=[read], session=session) as agent:
                    agent.followup("go")
                    await agent.when_idle()

    anyio.run(work)
    timeline, picture = here("replay", "run-1"), here("replay", "run", "--sequence")

    assert timeline.out.startswith("turn 1 completed after ")
    assert "2 steps, 2 requests, 2 tool calls" in timeline.out
    parsed(picture.out)
    assert "  par read (+" in picture.out
    assert "  and read (+" in picture.out
    assert here("replay", "run-1", "--store", store).out == timeline.out
    exported = here("sessions", "show", "run-1", "--json").out
    assert run(*LIFECYCLE, "replay", "-", input=exported.encode()).out == timeline.out


def test_a_torn_last_line_is_said_beside_the_rest(log: Path) -> None:
    write(log, RETRIED, end='\n{"seq": 16, "ti')

    ended = here("replay", log)

    assert ended.code == 0
    assert ended.out.startswith("turn 1 completed")
    assert ended.err == f"lifecycle replay: {log}, line {len(RETRIED) + 1}: the last line was torn, and is left out\n"


def test_one_turn_of_many(log: Path) -> None:
    second: list[Timed] = [(2000, ev.TurnStart(turn=2)), (2001, ev.TurnEnd(turn=2, reason=COMPLETED))]
    write(log, [*RETRIED, *second])

    assert here("replay", log, "--turn", "2").out.startswith("turn 2 completed after 1 ms\n")
    sentence(here("replay", log, "--turn", "3", "--json"), f"{log} has no turn 3; it has 1, 2")


def test_a_lifecycle_of_ones_own_says_who_speaks(log: Path) -> None:
    write(log, RETRIED)

    ours = here("replay", log, "--sequence").out
    assert here("replay", log, "--sequence", "--lifecycle", "Step").out == ours
    assert here("replay", log, "--sequence", "--lifecycle", "002").out != ours


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["log.jsonl: it is empty"]),
        ("# A title\n", ["line 1: '# A title' is no JSON"]),
        ('{"type":"session","version":9}\n', ["version 9"]),
        ('{"type":"turn/start","data":{}}\n', ["line 1: turn/start has no number `turn`"]),
        ('{"type":"turn/start","data":{"turn":true}}\n', ["line 1: turn/start has no number `turn`"]),
    ],
)
def test_a_file_that_is_no_log(log: Path, content: str, parts: list[str]) -> None:
    log.write_text(content, encoding="utf-8")

    for way in ([], ["--json"], ["--sequence"]):
        sentence(here("replay", log, *way), *parts)


def test_wrong_calls(log: Path, store: Path) -> None:
    write(log, RETRIED)

    sentence(here("replay", "none"), "there is no file 'none', and ", "holds no session 'none'")
    sentence(here("replay", log, "--store", store), "holds no session")
    sentence(here("replay", log.parent), "it cannot be read")
    sentence(here("replay", log, "--json", "--sequence"), "choose one")
    sentence(here("replay", log, "--lifecycle", "Turn"), "give both")
    sentence(here("replay", log, "--sequence", "--lifecycle", "Trun"), "did you mean 'Turn'")
    assert here("replay", log, "--turn", "x").code == 2


def test_a_pipe_that_breaks_ends_quietly(log: Path) -> None:
    write(log, RETRIED)

    ended = run("sh", "-c", '"$@" | head -c 4', "sh", *LIFECYCLE, "replay", log)

    assert ended == (0, "turn", "")
