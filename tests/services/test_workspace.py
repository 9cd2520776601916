"""The built-in tools stay inside their folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from lifecycle.errors import WorkspaceError
from lifecycle.services import folder
from lifecycle.services.points import AgentHandle, ToolOutcome
from lifecycle.services.signal import CancelSignal
from lifecycle.services.tools import Tool, ToolContext
from lifecycle.services.workspace import MAX_LINE, MAX_SEARCHED_BYTES, workspace_tools
from lifecycle.vocabulary.messages import TextBlock, ToolCallBlock
from lifecycle.vocabulary.values import FrozenDict

pytestmark = pytest.mark.anyio
DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    (made / "src" / "deep").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / ".git" / "config").write_text("secret tea")
    (made / "README.md").write_text("# Tea\n\nMake tea.\n")
    (made / "src" / "deep" / "tea.py").write_text("tea = 'green'\n")
    (tmp_path / "secret.txt").write_text("secret tea")
    (tmp_path / "workspace-next-door").mkdir()
    (tmp_path / "workspace-next-door" / "secret.txt").write_text("secret tea")
    return made


async def run(root: Path, name: str, **arguments: Any) -> ToolOutcome:
    tools = {tool.name: tool for tool in workspace_tools(root)}
    return await call(tools[name], **arguments)


async def call(tool: Tool, signal: CancelSignal | None = None, **arguments: Any) -> ToolOutcome:
    kwargs = tool.validate(FrozenDict(arguments))
    assert not isinstance(kwargs, ToolOutcome), said(kwargs)
    agent = cast("AgentHandle", SimpleNamespace())
    with anyio.fail_after(10):
        return await tool.run(
            kwargs, ToolContext(agent, ToolCallBlock(id="c", name=tool.name), signal or CancelSignal())
        )


def said(outcome: ToolOutcome) -> str:
    return "".join(block.text for block in outcome.content if isinstance(block, TextBlock))


def code(outcome: ToolOutcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


async def test_the_two_that_read_may_run_beside_others_and_the_search_may_not(root: Path) -> None:
    assert [(tool.name, tool.parallel) for tool in workspace_tools(root)] == [
        ("list_files", True),
        ("read_file", True),
        ("search_text", False),
    ]


# -- nothing leads out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret.txt",
        "src/../../secret.txt",
        "src/../README.md",
        "/etc/passwd",
        "//etc/passwd",
        "out",
        "out_dir/secret.txt",
        "out_of_link",
        "absolute",
        "next_door/secret.txt",
        "back_and_out",
    ],
)
@pytest.mark.parametrize("name", ["read_file", "list_files", "search_text"])
async def test_what_leads_out_is_refused(root: Path, path: str, name: str) -> None:
    (root / "out").symlink_to("../secret.txt")
    (root / "out_dir").symlink_to("..")
    (root / "src" / "up").symlink_to("..")
    (root / "out_of_link").symlink_to("src/up/../secret.txt")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "next_door").symlink_to(f"{root}-next-door")
    (root / "back_and_out").symlink_to(f"{root}/../secret.txt")

    outcome = await run(root, name, path=path, **({"query": "tea"} if name == "search_text" else {}))

    assert code(outcome) == "OUTSIDE_WORKSPACE"
    assert "secret tea" not in said(outcome)


async def test_links_that_stay_inside_are_followed(root: Path) -> None:
    (root / "relative").symlink_to("src/deep/../deep/tea.py")
    (root / "whole").symlink_to(root / "README.md")
    (root / "src" / "home").symlink_to(root)

    assert said(await run(root, "read_file", path="relative")) == "tea = 'green'\n"
    assert said(await run(root, "read_file", path="whole")).startswith("# Tea")
    assert said(await run(root, "read_file", path="src/home/src/home/README.md")).startswith("# Tea")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nowhere", "NOT_FOUND"),
        ("README.md/more", "NOT_A_DIRECTORY"),
        ("src", "NOT_A_FILE"),
        (".", "NOT_A_FILE"),
        ("", "NOT_A_FILE"),
        ("pipe", "NOT_A_FILE"),
        ("socket", "NOT_A_FILE"),
        ("round", "NOT_FOUND"),
        ("nul\0", "NOT_FOUND"),
        ("a" * 5_000, "NOT_READABLE"),
        ("binary", "BINARY_FILE"),
    ],
)
async def test_what_is_no_readable_file_is_an_error_result(root: Path, path: str, expected: str) -> None:
    os.mkfifo(root / "pipe")  # to open it would block for ever
    (root / "round").symlink_to("round")
    (root / "binary").write_bytes(b"tea\0tea")
    with socket.socket(socket.AF_UNIX) as unix:
        previous = os.getcwd()
        os.chdir(root)  # the path of a socket must be short
        try:
            unix.bind("socket")
        finally:
            os.chdir(previous)
        assert code(await run(root, "read_file", path=path)) == expected


async def test_a_device_is_refused_before_it_is_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.mknod(root / "null", 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs the right to make devices")
    opened: list[object] = []
    real = os.open

    def spy(path: Any, *args: Any, **kwargs: Any) -> int:
        opened.append(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", spy)
    monkeypatch.setattr(os, "supports_dir_fd", {spy})
    assert code(await run(root, "read_file", path="null")) == "NOT_A_FILE"
    assert "null" not in opened


async def test_a_link_swapped_in_after_the_look_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat
    swapped: list[object] = []

    def swapping(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        status = real(path, *args, **kwargs)
        if path == "README.md":
            swapped.append(path)
            (root / "README.md").unlink()
            (root / "README.md").symlink_to("../secret.txt")
        return status

    monkeypatch.setattr(os, "stat", swapping)
    outcome = await run(root, "read_file", path="README.md")

    assert swapped
    assert code(outcome) == "NOT_READABLE"
    assert "secret tea" not in said(outcome)


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs /proc")
async def test_no_descriptor_stays_open(root: Path) -> None:
    (root / "src" / "home").symlink_to(root)
    await run(root, "list_files")  # what the first call opens for good, the worker thread's, is not counted
    before = len(os.listdir(DESCRIPTORS))
    for path in ("README.md", "src/home/src/home/README.md", "src/nowhere", "../x", "src"):
        await run(root, "read_file", path=path)
    await run(root, "list_files", recursive=True, limit=1)
    await run(root, "search_text", query="tea", limit=1)
    assert len(os.listdir(DESCRIPTORS)) == before


@pytest.mark.parametrize("name", ["nowhere", "README.md"])
async def test_a_workspace_that_is_no_folder_is_refused_at_once(root: Path, name: str) -> None:
    with pytest.raises(WorkspaceError, match=name):
        workspace_tools(root / name)


# -- what they say ------------------------------------------------------------------------------------------------


async def test_list_files_tells_kinds_and_sizes_and_enters_no_hidden_folder(root: Path) -> None:
    (root / "link").symlink_to("src")
    (root / "two\nlines").touch()

    assert said(await run(root, "list_files")).splitlines() == [
        ".git/",
        "README.md (17)",
        "link@",
        "src/",
        "'two\\nlines' (0)",
    ]
    assert said(await run(root, "list_files", path="src", recursive=True)).splitlines() == ["deep/", "deep/tea.py (14)"]
    assert ".git/config" not in said(await run(root, "list_files", recursive=True))
    assert said(await run(root, "list_files", limit=1)) == (
        ".git/\n[cut at 1 entries; list a folder within, or raise the limit]"
    )
    (root / "empty").mkdir()
    assert said(await run(root, "list_files", path="empty")) == "[empty]"


async def test_read_file_goes_on_where_it_was_cut_without_halving_a_character(root: Path) -> None:
    text = "aä€😀" * 20
    (root / "long.txt").write_text(text)
    read, offset = "", 0
    for _ in range(100):
        shown = said(await run(root, "read_file", path="long.txt", offset=offset, limit=7))
        piece, _, note = shown.rpartition("\n")
        read += piece
        if note.endswith("to the end]"):
            break
        offset = int(note.partition("offset=")[2].rstrip("]"))
    assert read == text


async def test_search_text_tells_path_line_and_text(root: Path) -> None:
    (root / "binary").write_bytes(b"tea\0")
    (root / "huge").write_bytes(b"tea\n" * (MAX_SEARCHED_BYTES // 4 + 1))
    (root / "wide").write_text("tea" * 1_000)
    (root / "link").symlink_to("../secret.txt")

    assert said(await run(root, "search_text", query="tea")).splitlines() == [
        "README.md:3: Make tea.",
        "src/deep/tea.py:1: tea = 'green'",
        f"wide:1: {('tea' * 1_000)[:MAX_LINE]}...",
        f"[not searched, more than {MAX_SEARCHED_BYTES} bytes: huge]",
    ]
    found = await run(root, "search_text", query="TEA", path="src/./deep/", ignore_case=True)
    assert said(found) == "src/deep/tea.py:1: tea = 'green'"
    assert said(await run(root, "search_text", query="coffee", path="src")) == "[no line holds 'coffee']"
    assert said(await run(root, "search_text", query="a", limit=1)).splitlines() == [
        "README.md:1: # Tea",
        "[cut at 1 lines; search a folder within]",
    ]


async def test_a_walk_ends_at_its_bound_and_when_the_turn_is_cancelled(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "MAX_VISITED", 2)
    assert said(await run(root, "list_files")).splitlines()[-1] == "[there is more; list a folder within]"

    descriptor = os.open(root, os.O_RDONLY)
    try:
        walk = folder.Walk(descriptor, depth=3, cancelled=lambda: True)
        assert (list(walk), walk.stopped) == ([], True)
    finally:
        os.close(descriptor)
