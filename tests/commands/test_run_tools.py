"""Tools that misbehave break neither the turn nor the output."""

from __future__ import annotations

import json
from pathlib import Path

from .child import HOST, run


def test_tools_that_raise_and_print_and_return_no_json_break_neither_turn_nor_output(
    store: Path, workspace: Path
) -> None:
    ended = run(*HOST, "bad-tools", "run", "see README.md", "--workspace", workspace)

    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[1:3] == ['→ list_files {"path": "."}', '→ read_file {"path": "README.md"}']
    assert lines[3] == "← list_files failed (TOOL_FAILED): ValueError: no \ufffd[31mfiles\ufffd[0m today"
    assert lines[4].startswith("← read_file failed (INVALID_RESULT): the tool read_file returned object")
    assert lines[7] == "← search_text: found (+1 line)"
    assert "by a tool" not in ended.out
    for printed in ("printed by a tool\n", "written by a tool\n", "spawned by a tool\n", "left in a buffer by a tool"):
        assert printed in ended.err
    assert "3 tool calls (2 failed)" in ended.err


def test_with_json_what_tools_print_gets_between_no_lines(store: Path, workspace: Path) -> None:
    ended = run(*HOST, "bad-tools", "run", "--json", "see README.md", "--workspace", workspace)

    assert ended.code == 0
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert {line["domain"] for line in lines} == {"durable", "live"}
    assert [line["data"].get("error") for line in lines if line.get("type") == "tool/result"] == [
        {"code": "TOOL_FAILED", "name": "ValueError"},
        {"code": "INVALID_RESULT"},
        None,
    ]
    assert "by a tool" not in "".join(
        line["chunk"]["text"] for line in lines if line.get("chunk", {}).get("type") == "text-delta"
    )
    assert "\x1b" not in ended.out
