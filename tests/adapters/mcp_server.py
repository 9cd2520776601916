"""A real MCP server in a process of its own: `python mcp_server.py FOLDER [http PORT]`. It notes there what it does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

FOLDER = Path(sys.argv[1])
server = MCPServer("tests")


def note(what: str) -> None:
    with (FOLDER / "notes").open("a") as file:
        file.write(what + "\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def write(text: str) -> str:
    """Writes."""
    note(f"write {text}")
    return f"wrote {text}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("no such luck")


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    note("die")
    os._exit(3)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def die_once() -> str:
    """Reads, and the first time ends the server."""
    note("die once")
    if (FOLDER / "died").exists():
        return "survived"
    (FOLDER / "died").touch()
    os._exit(3)


@server.tool()
def hang() -> str:
    """Stops the whole server from answering."""
    note("hang")
    os.kill(os.getpid(), 19)
    return "woken"


@server.tool()
async def patient(ctx: Context) -> str:
    """Tells how far it is, and waits to be cancelled."""
    try:
        await ctx.report_progress(1, 4, "on my way")
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        note("cancelled")
        raise
    return "never"


def grown() -> str:
    """Was not there from the beginning."""
    return "grown"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and says so."""
    server.add_tool(grown)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "there is more"


NOTES = FOLDER / "notes"
if NOTES.exists() and "die\n" in NOTES.read_text():
    server.add_tool(grown, name="reborn")

note(f"started {os.getpid()}")
if len(sys.argv) > 2:
    server.run("streamable-http", port=int(sys.argv[3]), host="127.0.0.1")
else:
    server.run()
