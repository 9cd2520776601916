"""The pages of the policies: their sessions are those of the policies, and their pictures those of `replay`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import pytest

from lifecycle.commands.pages import LANGUAGES, our_pages
from lifecycle.commands.policy_demos import DEMOS, demo
from lifecycle.commands.policy_texts import OPTIONS_ZH, POLICIES, Policy

from ..pictures.judge import parsed
from .child import here

SAYS = {
    "policy-retry": ["llm/retry", "llm/retry-started"] * 2,
    "policy-compaction": ["compaction/prune"] * 2 + ["compaction/start", "compaction/summary", "compaction/end"],
    "policy-runtime-context": ["(runtime-context)"] * 2,
    "policy-model-switch": ["(model-switch)"],
    "policy-plan-mode": ["(plan-mode)"] * 2,
    "policy-limits": ["(DENIED)", "aborted"],
}
"""What each policy says in its session, in order."""

each = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.file)


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return our_pages()[0]


@each
def test_a_session_is_the_same_on_both_backends_and_legal(policy: Policy) -> None:
    events = [[event.encode() for event in demo(policy.name, backend).events] for backend in ("asyncio", "trio")]

    assert events[0] == events[1]
    checked = here("check", f"demo:{policy.name}")
    assert (checked.code, checked.err) == (0, "")
    assert f"the demo of {policy.name}: legal under revision 000: {len(events[0])} records" in checked.out


@each
def test_the_picture_is_what_replay_draws_of_the_session_and_the_policy_is_seen_in_it(
    policy: Policy, tmp_path: Path, pages: Mapping[str, str]
) -> None:
    drawn = here("replay", f"demo:{policy.name}", "--sequence")
    file = tmp_path / "demo.jsonl"
    file.write_text("".join(f"{event.encode()}\n" for event in demo(policy.name).events), encoding="utf-8")
    picture = drawn.out
    said = [word for line in picture.splitlines() for word in line.split() if word in SAYS[policy.file]]

    assert (drawn.code, drawn.err) == (0, "")
    assert here("replay", file, "--sequence").out == picture
    assert all(f"```mermaid\n{picture}```" in pages[f"{policy.file}{lang}.md"] for lang in ("", ".zh"))
    assert said == SAYS[policy.file]
    parsed(picture)


@each
def test_a_page_says_where_the_policy_listens_and_what_every_option_means(
    policy: Policy, pages: Mapping[str, str]
) -> None:
    hooks = policy.hooks()

    for lang in LANGUAGES:
        page = pages[f"{policy.file}{'' if lang == 'en' else '.zh'}.md"]
        assert all((f"* `{name}` (" in page) == bool(hooks.listeners(name)) for name in hooks.points)
        for options in policy.options:
            for name in inspect.signature(options).parameters:
                (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
                meaning = row.split("|")[3]
                assert meaning.strip()
                assert meaning.isascii() == (lang == "en")


@each
def test_what_a_page_shows_in_use_can_be_imported(policy: Policy) -> None:
    imports = [line for line in policy.usage.splitlines() if line.startswith("from ")]

    assert imports
    for line in imports:
        exec(line, {})


def test_the_demos_are_those_of_the_pages_and_another_name_is_a_sentence() -> None:
    assert [policy.name for policy in POLICIES] == list(DEMOS)

    ended = here("replay", "demo:rety")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "lifecycle replay: there is no demo 'rety' (did you mean 'retry'?); there are retry, compaction, "
        "runtime-context, model-switch, plan-mode, limits\n"
    )


def test_every_option_is_told_in_chinese_and_nothing_else() -> None:
    kinds = [kind for policy in POLICIES for kind in policy.options]

    assert {kind: list(told) for kind, told in OPTIONS_ZH.items()} == {
        kind.__name__: list(inspect.signature(kind).parameters) for kind in kinds
    }
