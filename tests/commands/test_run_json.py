"""`lifecycle run --json`: both domains in one order, a line each, at once."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

from lifecycle.commands.jsonlines import as_json, dump

from .child import HOST, LIFECYCLE, Child, here, run
from .provider import serving, streaming

STARTED = """
live agent/session-start
durable agent/inbox/spliced +1
live agent/inbox/inserted
live agent/status running
durable turn/start
durable agent/inbox/spliced -1
live agent/inbox/claimed
durable step/start
durable system/message
durable user/message
durable request/header
durable request/context
live agent/assistant-stream start
live agent/assistant-stream chunk
durable assistant/attempt
live agent/assistant-stream end
durable llm/retry
durable llm/retry-started
live agent/assistant-stream start
live agent/assistant-stream chunk
durable assistant/message
live agent/assistant-stream end
durable tool/call list_files
durable tool/call read_file
live tools/result list_files
durable tool/result
live tools/result read_file
durable tool/result
durable step/end
durable step/start
live agent/assistant-stream start
live agent/assistant-stream chunk
durable assistant/message
live agent/assistant-stream end
durable tool/call search_text
live tools/result search_text
durable tool/result
durable step/end
durable step/start
live agent/assistant-stream start
live agent/assistant-stream chunk
durable assistant/message
live agent/assistant-stream end
durable step/end
durable turn/end completed
live agent/status idle
"""
"""The reference trace of one prompt, with a retry in the first step, two calls side by side, and one on its own."""


def short(line: dict[str, Any]) -> str:
    """The domain, the name, and what tells it from others of its name."""
    name = line["type"] if line["domain"] == "durable" else line["name"]
    match line:
        case {"type": "agent/inbox/spliced", "data": {"removedCount": int(count)}}:
            told = f"-{count}"
        case {"type": "agent/inbox/spliced", "data": {"inserted": inserted}}:
            told = f"+{len(inserted)}"
        case {"type": "tool/call", "data": {"name": str(told)}}:
            pass
        case {"type": "turn/end", "data": {"reason": {"kind": str(told)}}}:
            pass
        case {"status": str(told)} | {"frame": {"type": str(told)}} | {"call": {"name": str(told)}}:
            pass
        case _:
            told = ""
    return f"{line['domain']} {name} {told}".rstrip()


def test_the_demo_is_the_reference_trace_with_tools_and_a_retry(store: Path, workspace: Path) -> None:
    ended = run(*HOST, "plain", "run", "--json", "--system", "Be brief.", "see README.md", "--workspace", workspace)

    assert (ended.code, ended.err) == (0, "")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [told for told, _ in groupby(map(short, lines))] == STARTED.split("\n")[1:-1]
    durable = [line for line in lines if line["domain"] == "durable"]
    assert [line["seq"] for line in durable] == list(range(len(durable)))
    shown = here("sessions", "show", "--json", lines[0]["session"]).out
    assert [{"domain": "durable", **json.loads(line)} for line in shown.splitlines()] == durable


def test_each_line_comes_at_once(store: Path) -> None:
    gate = Event()
    with (
        serving(streaming(["one", gate, "two"])) as url,
        Child(*LIFECYCLE, "run", "--json", "hi", "--base-url", url, "--model", "m") as child,
    ):
        line = json.loads(child.says('"text":"one"'))
        gate.set()
        child.says('"text":"two"')
        code = child.end().code

    assert (code, line["domain"], line["name"]) == (0, "live", "agent/assistant-stream")


def test_what_could_drive_a_terminal_or_split_a_line_is_escaped_and_means_the_same() -> None:
    said = "\x1b[31m \x85 \x9b2J \u2028 \u202e \x7f ü 漢 \n"

    line = dump({"text": said})

    assert json.loads(line) == {"text": said}
    assert len(line.splitlines()) == 1
    assert not set(line) & set("\x1b\x85\x9b\u2028\u202e\x7f")
    assert "ü 漢" in line


def test_a_payload_without_a_json_form_is_told_as_text() -> None:
    assert as_json([float("nan"), float("inf"), 1.5, ValueError("no\ud800"), {1}, None, True]) == [
        "nan",
        "inf",
        1.5,
        {"message": "ValueError: no\ufffd", "code": "UNKNOWN"},
        "{1}",
        None,
        True,
    ]
