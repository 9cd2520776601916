"""`lifecycle sessions`: list, show, fork and delete stored sessions."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO, TypeAlias

import anyio

from lifecycle.session.sqlite import SqliteStore
from lifecycle.session.store import SessionInfo

from .calls import CallError, add_store, open_store
from .output import own_output, printable
from .transcript import story_lines

Action: TypeAlias = Callable[[SqliteStore, argparse.Namespace, TextIO], Awaitable[None]]


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sessions",
        help="list, show, fork and delete stored sessions",
        description="Look after stored sessions. An id may be shortened to a beginning that no other session shares.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = _action(actions, "list", _list, "list the sessions, the newest change first")
    listing.add_argument("--json", action="store_true", help="one object per session, a line each")
    showing = _action(actions, "show", _show, "tell a session again")
    showing.add_argument("id", help="which session")
    showing.add_argument("--json", action="store_true", help="one event per line, as it is stored")
    forking = _action(actions, "fork", _fork, "begin a new session with the beginning of another one")
    forking.add_argument("id", help="which session")
    forking.add_argument(
        "--at",
        metavar="TURN[.STEP]",
        type=_place,
        help="fork after this turn, or after this step of it (default: after the last turn)",
    )
    forking.add_argument("--id", dest="new_id", metavar="NEW", help="the id of the new session (default: a fresh one)")
    deleting = _action(actions, "delete", _delete, "forget sessions for good")
    deleting.add_argument("ids", metavar="id", nargs="+", help="which sessions")


def _action(actions: Any, name: str, action: Action, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=what, description=what.capitalize() + ".")
    add_store(parser)
    parser.set_defaults(perform=perform, action=action, name=f"lifecycle sessions {name}")
    return parser


def _place(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no place; write TURN or TURN.STEP, such as 2 or 2.1")
    return int(found[1]), int(found[2]) if found[2] else None


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    with own_output() as out:
        anyio.run(partial(_perform, args, out))
    return 0


async def _perform(args: argparse.Namespace, out: TextIO) -> None:
    async with open_store(args.store) as store:
        await args.action(store, args, out)


async def _list(store: SqliteStore, args: argparse.Namespace, out: TextIO) -> None:
    sessions = await store.list()
    if args.json:
        for info in sessions:
            out.write(json.dumps(_as_json(info), ensure_ascii=False) + "\n")
        return
    if not sessions:
        out.write(f"{store.path} holds no sessions.\n")
        return
    for info in sessions:
        out.write(printable(_row(info)) + "\n")


def _row(info: SessionInfo) -> str:
    when = datetime.fromtimestamp(info.updated_at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    turns = f"{info.turns} turn" + ("" if info.turns == 1 else "s")
    marks = [f"fork of {info.parent.parent}"] if info.parent is not None else []
    marks += ["in use"] if info.locked else []
    return f"{info.id}  {when}  {turns:>8}  {info.title}" + (f"  ({', '.join(marks)})" if marks else "")


def _as_json(info: SessionInfo) -> dict[str, object]:
    told: dict[str, object] = {
        "id": info.id,
        "createdAt": info.created_at,
        "updatedAt": info.updated_at,
        "events": info.events,
        "turns": info.turns,
        "title": info.title,
        "inUse": info.locked,
    }
    if info.parent is not None:
        told["parent"] = {"id": info.parent.parent, "prefix": info.parent.prefix}
    return told


async def _show(store: SqliteStore, args: argparse.Namespace, out: TextIO) -> None:
    session = await store.open(await _resolve(store, args.id), read_only=True)
    if args.json:
        for event in session.events:
            out.write(event.encode() + "\n")
        return
    for line in story_lines(session.events):
        out.write(printable(line) + "\n")


async def _fork(store: SqliteStore, args: argparse.Namespace, out: TextIO) -> None:
    turn, step = args.at or (None, None)
    child = await store.fork(await _resolve(store, args.id), turn, step, args.new_id)
    out.write(f"{child.id}\n")


async def _delete(store: SqliteStore, args: argparse.Namespace, out: TextIO) -> None:
    ids = [await _resolve(store, id) for id in args.ids]
    for id in ids:
        await store.delete(id)
        out.write(f"deleted {id}\n")


async def _resolve(store: SqliteStore, given: str) -> str:
    """The id that `given` is, or begins."""
    ids: Sequence[str] = [info.id for info in await store.list()]
    found = [given] if given in ids else [id for id in ids if id.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CallError(
            f"{given!r} begins {len(found)} sessions, {found[0]} and {found[1]} among them; give more of it"
        )
    raise CallError(f"{store.path} holds no session {given!r}; `lifecycle sessions list` tells which there are")
