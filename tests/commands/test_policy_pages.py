"""The pages of the policies: their sessions are those of the policies, and their pictures those of `replay`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lifecycle.commands.pages import LANGUAGES, our_pages
from lifecycle.commands.policy_demos import demo
from lifecycle.commands.policy_pages import POLICIES, Policy, picture_of

from ..pictures.judge import parsed
from .child import here

SAYS = {
    "policy-retry": ["llm/retry", "llm/retry-started"] * 2,
    "policy-compaction": ["compaction/prune"] * 2 + ["compaction/start", "compaction/summary", "compaction/end"],
    "policy-runtime-context": ["(runtime-context)"] * 2,
    "policy-model-switch": ["(model-switch)"],
    "policy-plan-mode": ["(plan-mode)"] * 2,
}
"""What each policy says in its session, in order."""

each = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.file)


def file_of(policy: Policy, folder: Path) -> Path:
    path = folder / "demo.jsonl"
    path.write_text("".join(f"{event.encode()}\n" for event in demo(policy.demo).events), encoding="utf-8")
    return path


@each
def test_a_session_is_the_same_on_both_backends_and_legal(policy: Policy, tmp_path: Path) -> None:
    events = [[event.encode() for event in demo(policy.demo, backend).events] for backend in ("asyncio", "trio")]

    assert events[0] == events[1]
    assert here("check", file_of(policy, tmp_path)).code == 0


@each
def test_the_picture_is_what_replay_draws_of_the_session_and_the_policy_is_seen_in_it(
    policy: Policy, tmp_path: Path
) -> None:
    drawn = here("replay", file_of(policy, tmp_path), "--sequence")
    picture = picture_of(demo(policy.demo))
    said = [word for line in picture.splitlines() for word in line.split() if word in SAYS[policy.file]]

    assert (drawn.code, drawn.out) == (0, picture)
    assert said == SAYS[policy.file]
    parsed(picture)


@each
def test_a_page_says_where_the_policy_listens_and_what_every_option_means(policy: Policy) -> None:
    made, _ = our_pages()
    hooks = policy.hooks()

    for lang in LANGUAGES:
        page = made[f"{policy.file}{'' if lang == 'en' else '.zh'}.md"]
        assert all((f"* `{name}` (" in page) == bool(hooks.listeners(name)) for name in hooks.points)
        for options in policy.options:
            rows = [
                line
                for field in dataclasses.fields(options)
                for line in page.splitlines()
                if f"| `{field.name}` |" in line
            ]
            assert len(rows) >= len(dataclasses.fields(options))
            assert lang == "zh" or not [row for row in rows if row.rstrip().endswith("|  |")]


@each
def test_what_a_page_shows_in_use_can_be_imported(policy: Policy) -> None:
    imports = [line for line in policy.usage.splitlines() if line.startswith("from ")]

    assert imports
    for line in imports:
        exec(line, {})
