"""The acceptor: what the definition lets be recorded, one record after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from lifecycle.definition.acceptor import Acceptor, Divergence, alphabet_of
from lifecycle.definition.agent import Agent
from lifecycle.definition.effects import record
from lifecycle.definition.family import within
from lifecycle.definition.revisions import REVISIONS
from lifecycle.definition.step import Step

Said = tuple[str, dict[str, Any]]

SENT: Said = ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{}]})
CLAIM: Said = ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
START: Said = ("turn/start", {"turn": 1})
FAILED = {"reason": {"kind": "error"}}
"""What may have become of any turn."""
COMPLETED = {"reason": {"kind": "completed"}}
END: Said = ("turn/end", {"turn": 1, **FAILED})
USER: Said = ("user/message", {})
SEED: Said = ("session/end-seed", {})


def step(name: str, **more: Any) -> Said:
    return name, {"turn": 1, "step": 1, **more}


def answer(*calls: str, **more: Any) -> Said:
    content = [{"type": "text"}, *({"type": "tool-call", "id": call} for call in calls)]
    return step("assistant/message", message={"content": content}, **more)


def call(id: str) -> Said:
    return step("tool/call", callId=id)


def result(id: str, code: str = "") -> Said:
    fault = {"error": {"code": code}} if code else {}
    return step("tool/result", message={"source": {"callId": id}}, **fault)


OPEN = [SENT, START, CLAIM, step("step/start"), USER]
CLOSED = [step("step/end"), END]


def diverges(records: Iterable[Said], judge: Any = "000", *, at: int | None = None) -> Divergence | None:
    """Where some records diverge; they must do so at the last one, or at the end."""
    acceptor, said = Acceptor(judge), list(records)
    for n, (name, data) in enumerate(said):
        wrong = acceptor.take(name, data)
        if wrong is not None:
            assert n == (len(said) - 1 if at is None else at), wrong
            return wrong
    return acceptor.end()


def test_a_turn_is_legal_and_the_log_may_end_behind_it() -> None:
    assert diverges([*OPEN, answer(), *CLOSED]) is None


def test_what_is_not_legal_is_told_with_the_phase_and_what_would_have_been() -> None:
    wrong = diverges([*OPEN, answer(), step("request/context")])

    assert wrong is not None
    assert (wrong.why, wrong.name, wrong.turn, wrong.step) == ("order", "request/context", 1, 1)
    assert wrong.phases == ("running/stepping/tooling",)
    assert wrong.expected == ("step/end", "user/message")
    assert str(wrong).startswith("request/context cannot follow here; the run was in running/stepping/tooling, where")


@pytest.mark.parametrize(
    ("held", "left"),
    [
        ([answer()], ""),
        ([step("assistant/attempt"), answer()], ""),
        ([answer("a"), call("a"), result("a")], ""),
        ([], "step 1 came to no answer"),
        ([step("assistant/attempt")], "step 1 came to no answer"),
        ([answer(interrupted=True)], "step 1 came to no answer"),
        ([answer("a"), call("a")], ""),  # LOG-07
    ],
)
def test_a_turn_is_completed_only_by_steps_that_were_answered(held: list[Said], left: str) -> None:
    wrong = diverges([*OPEN, *held, step("step/end"), ("turn/end", {"turn": 1, **COMPLETED})])

    assert (wrong is None) == (left == "")
    assert wrong is None or wrong.reason == f"turn/end does not fit: its reason is 'completed', and {left}"


@pytest.mark.parametrize("reason", [None, {}, {"kind": "weird"}])
def test_a_turn_ends_for_a_reason_that_there_is(reason: object) -> None:
    wrong = diverges([SENT, START, CLAIM, ("turn/end", {"turn": 1, "reason": reason})])

    assert wrong is not None
    assert "which is none of completed, max-tokens, blocked" in wrong.reason


def test_a_refused_record_changes_nothing() -> None:
    acceptor = Acceptor()
    for name, data in OPEN:
        assert acceptor.take(name, data) is None

    assert acceptor.take(*START) is not None
    assert acceptor.take("step/end", {"turn": 1, "step": 2}) is not None
    assert [acceptor.take(*one) for one in (answer(), *CLOSED)] == [None] * 3
    assert acceptor.end() is None


def test_what_is_weighed_counts_only_when_it_is_kept() -> None:
    acceptor = Acceptor()

    assert acceptor.weigh(*SENT) is None
    assert acceptor.weigh(*START) is not None
    assert acceptor.weigh(*SENT) is None
    acceptor.keep()
    acceptor.keep()
    assert acceptor.take(*START) is None


@pytest.mark.parametrize("lost", ["turn/end", "step/end"])
def test_no_fault_excuses_a_boundary_that_is_lost(lost: str) -> None:
    """A refused end leaves its turn open; then the log ends there."""
    again: list[Said] = [SENT, ("turn/start", {"turn": 2})]
    kept = [one for one in [*OPEN, answer(), *CLOSED] if one[0] != lost]

    assert diverges([*kept, *again], at=len(kept) + 1 if lost == "turn/end" else len(kept) - 1) is not None


def test_a_turn_that_was_recorded_is_open_whatever_fails_right_behind_it() -> None:
    """Its start may be refused, and then there is none; once it is in the log, an end must follow."""
    wrong = diverges([SENT, START, SENT, ("turn/start", {"turn": 2})])

    assert wrong is not None
    assert (wrong.why, "turn/end" in wrong.expected) == ("order", True)


def test_a_log_that_ends_in_an_open_turn_says_so() -> None:
    wrong = diverges([*OPEN, answer("a"), call("a")])

    assert wrong is not None
    assert (wrong.why, wrong.reason) == ("end", "the log ends while step 1 of turn 1 is open")
    assert wrong.expected == ("approval/asked", "step/end", "tool/result", "user/message")


ASKED: Said = ("approval/asked", {"id": "q", "callId": "a", "toolName": "t", "reason": "sure?"})
DECIDED: Said = ("approval/decided", {"id": "q", "outcome": "approved"})


def test_a_log_may_end_while_somebody_is_asked_about_a_call() -> None:
    asked = [*OPEN, answer("a", "b"), call("a"), ASKED]

    assert diverges(asked) is None
    assert diverges([*asked, DECIDED]) is not None  # its process was lost; what came of the call is unknown
    assert diverges([*asked, DECIDED, result("a"), call("b"), result("b"), *CLOSED]) is None


@pytest.mark.parametrize(
    ("tail", "says"),
    [
        ([ASKED], "approval/asked does not fit: it is about 'a', which is not the newest that is unsettled"),
        ([call("a"), DECIDED], "approval/decided does not fit: it is of 'q', of which no approval/asked is left"),
        ([call("a"), ASKED, call("b")], "tool/call does not fit: 'q' is still undecided"),
        ([call("a"), call("b"), ASKED], "about 'a', which is not the newest"),
        ([call("a"), ASKED, result("a"), step("step/end")], "step/end does not fit: 'q' is still undecided"),
        ([call("a"), ASKED, DECIDED, DECIDED], "no approval/asked is left"),
    ],
)
def test_an_ask_is_about_the_call_that_started_last_and_nothing_starts_until_it_is_decided(
    tail: list[Said], says: str
) -> None:
    wrong = diverges([*OPEN, answer("a", "b"), *tail])

    assert wrong is not None
    assert wrong.why == "reference"
    assert says in wrong.reason


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param([], id="a fault before the request"),
        pytest.param([step("assistant/attempt")], id="a request that failed"),
        pytest.param([step("assistant/attempt"), step("assistant/attempt"), answer()], id="two retries"),
        pytest.param([answer(interrupted=True)], id="cut off with something to see"),
        pytest.param([answer("a", "b"), call("a"), call("b"), result("a"), result("b")], id="calls that overlap"),
        pytest.param([answer("a", "b"), call("a")], id="the scheduler failed"),
        pytest.param([answer("a"), USER], id="a listener appended something"),
    ],
)
def test_what_a_step_may_hold(tail: list[Said]) -> None:
    assert diverges([*OPEN, *tail, *CLOSED]) is None


def test_a_step_whose_calls_are_not_settled_has_failed_and_no_other_follows() -> None:
    """The guards that count read what the records tell."""
    another: Said = ("step/start", {"turn": 1, "step": 2})

    for unsettled in ([answer("a")], [answer("a"), call("a")], [answer("a", "b"), call("a"), result("a")]):
        wrong = diverges([*OPEN, *unsettled, step("step/end"), another])
        assert wrong is not None
        assert (wrong.why, wrong.expected) == ("order", ("turn/end",))
    settled = diverges([*OPEN, answer("a"), call("a"), result("a"), step("step/end"), another])
    assert settled is not None
    assert settled.why == "end"


def test_outside_moves_may_come_at_any_time_and_claims_may_not() -> None:
    late: Said = ("agent/inbox/spliced", {"target": "next-step", "start": 0, "inserted": [{}]})
    canceled: Said = (
        "agent/inbox/spliced",
        {"target": "next-step", "start": 0, "removedCount": 1, "outcome": "canceled"},
    )
    taken: Said = ("agent/inbox/spliced", {"target": "next-step", "start": 0, "removedCount": 1})

    for n in range(1, len(OPEN) + 1):
        assert diverges([*OPEN[:n], late, canceled, *OPEN[n:], answer(), *CLOSED]) is None
    wrong = diverges([*OPEN, late, taken])
    assert wrong is not None
    assert wrong.reason == "agent/inbox/spliced (claim) cannot follow here"


def test_a_plug_in_passes_by_its_name_and_what_may_be_ignored_by_its_mark() -> None:
    acceptor = Acceptor()

    assert acceptor.take("todo/write", {}) is None
    assert acceptor.take("mine/noted", {}, ignorable=True) is None
    wrong = acceptor.take("mine/noted", {})
    assert wrong is not None
    assert (wrong.why, wrong.name) == ("unknown", "mine/noted")
    assert Acceptor(alphabet_of("000", ["mine/"])).take("mine/noted", {}) is None


def test_a_record_of_another_revision_is_known_and_refused() -> None:
    chunk = step("assistant/chunk")

    wrong = diverges([*OPEN, chunk])
    assert wrong is not None
    assert wrong.reason == "this revision records no assistant/chunk"
    assert diverges([*OPEN, chunk, answer(), *CLOSED], "2026-08") is None


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_a_language(revision: str) -> None:
    opened = [START, step("step/start")] if revision == "002" else [SENT, START, step("step/start")]

    assert diverges([*opened, answer(), *CLOSED], revision) is None
    assert diverges([*opened, answer(), step("step/end"), END, END], revision) is not None


def test_messages_without_a_claim_are_legal_only_in_an_adopted_prefix() -> None:
    adopted = [START, USER, END]
    word = [*adopted, SEED, SENT, ("turn/start", {"turn": 2}), ("turn/end", {"turn": 2, **FAILED})]

    assert diverges(word, "2026-08") is None
    wrong = diverges(adopted, "2026-08")
    assert wrong is not None
    assert (wrong.why, wrong.name, wrong.phases) == ("order", "turn/start", ("idle",))
    assert diverges(word, "000", at=0) is not None


def test_the_chunks_of_an_answer_alone_are_a_log_of_the_snapshot_and_nothing_may_follow() -> None:
    chunk = step("assistant/chunk")

    assert diverges([chunk, chunk], "2026-08") is None
    assert diverges([chunk, SENT], "2026-08") is not None
    assert diverges([SENT, chunk], "2026-08") is not None


class Noted(Step):
    """A step that records how it was proposed."""

    boundary = Step.boundary.but(record("mine/proposed"), *Step.boundary.does)


def test_a_users_lifecycle_is_judged_by_what_it_declares() -> None:
    whole = within(Agent, Noted)
    noted: Said = ("mine/proposed", {})

    assert diverges([*OPEN[:3], noted, *OPEN[3:], answer(), *CLOSED], whole) is None
    assert diverges(OPEN[:4], whole) is not None
    assert diverges([*OPEN, noted], whole, at=3) is not None
