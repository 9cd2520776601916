"""`lifecycle run` where a request fails in passing: it waits, says so, and asks again; unless it is told not to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from lifecycle.policies.retry import RetryOptions, retrying

from .child import Ended, here
from .provider import Answer, breaking_off, one_by_one, refusing, serving, streaming

BUSY = refusing(429, {"retry-after-ms": "20"}, message="slow down", code="rate_limit_exceeded")
TOMORROW = refusing(429, {"retry-after": "86400"}, message="come back tomorrow", code="rate_limit_exceeded")


def ran(answers: Sequence[Answer], *options: str) -> Ended:
    with serving(one_by_one(*answers)) as url:
        return here("run", "hi", "--base-url", url, "--model", "m", *options)


def noted(ended: Ended) -> list[str]:
    lines = [line for line in ended.err.splitlines() if line.startswith("! request failed")]
    return [line[line.rindex("asking again") :] for line in lines]


def test_a_request_that_is_refused_for_now_is_made_again_after_the_wait_that_was_asked_for(store: Path) -> None:
    ended = ran([BUSY, BUSY, streaming(["Hello."])])

    assert (ended.code, ended.out) == (0, "Hello.\n")
    assert noted(ended) == ["asking again in 0.02 s"] * 2
    assert "failed (RATE_LIMIT): " in ended.err
    assert "It took 1 step, 3 requests (2 failed)" in ended.err
    told = here("sessions", "show", json.loads(here("sessions", "list", "--json").out)["id"])
    assert told.out.count("(asking again in 0.02 s)\n") == 2


def test_an_answer_that_breaks_off_begins_again_and_says_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lifecycle.commands.run.retrying", partial(retrying, RetryOptions(chance=lambda: 0.01)))
    ended = ran([breaking_off("Hel"), streaming(["Hello."])])

    assert (ended.code, ended.out) == (0, "Hel\nHello.\n")
    assert noted(ended) == ["asking again in 0.005 s, and the answer begins again"]


def test_a_wait_until_tomorrow_ends_the_turn_at_once_and_is_told(store: Path) -> None:
    ended = ran([TOMORROW])

    assert (ended.code, noted(ended)) == (1, [])
    assert "it asks to wait 86400 s before the next request." in ended.err


def test_whoever_wants_no_retry_gets_the_first_failure(store: Path) -> None:
    ended = ran([BUSY], "--no-retry")

    assert (ended.code, noted(ended)) == (1, [])
    assert "The turn failed (RATE_LIMIT): " in ended.err
    assert "It took 1 step, 1 request (1 failed)" in ended.err


@pytest.mark.parametrize("status", [400, 401])
def test_a_failure_that_waiting_does_not_mend_is_not_made_again(status: int, store: Path) -> None:
    ended = ran([refusing(status, message="no")])

    assert (ended.code, noted(ended)) == (1, [])


def test_the_waits_are_among_the_lines_of_json(store: Path) -> None:
    ended = ran([BUSY, streaming(["Hello."])], "--json")

    (wait,) = [json.loads(line) for line in ended.out.splitlines() if '"llm/retry"' in line]
    assert ended.code == 0
    assert (wait["data"]["delayMs"], wait["data"]["failure"]["code"]) == (20, "RATE_LIMIT")
