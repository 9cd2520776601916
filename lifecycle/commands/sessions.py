"""`lifecycle sessions`: list, show, fork, compact and delete stored sessions."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from lifecycle.errors import CompactionError

from .calls import CallError, plugin
from .jsonlines import dump, event_line
from .output import Output, complain, own_output, printable
from .stores import add_store, is_missing, open_store, store_name
from .transcript import story_lines

if TYPE_CHECKING:
    from lifecycle.session.base import StoreBase
    from lifecycle.session.store import SessionInfo

Action: TypeAlias = "Callable[[StoreBase, argparse.Namespace, Output], Awaitable[None]]"

_EXIT_CODES = "Exit code: 0 if it was done; 2 if the call was wrong or the store cannot be used."
_ID = "which session; the beginning of its id is enough"


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sessions",
        help="list, show, fork, compact and delete stored sessions",
        description="Look after stored sessions. An id may be shortened to a beginning that no other session shares.",
        epilog=_EXIT_CODES,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = _action(actions, "list", _list, "list the sessions, the newest change first")
    listing.add_argument("--json", action="store_true", help="one object per session, a line each")
    showing = _action(actions, "show", _show, "tell a session again")
    showing.add_argument("id", help=_ID)
    showing.add_argument("--json", action="store_true", help="one event per line, as it is stored")
    forking = _action(actions, "fork", _fork, "begin a new session with the beginning of another one; prints its id")
    forking.add_argument("id", help=_ID)
    forking.add_argument(
        "--at",
        metavar="TURN[.STEP]",
        type=_place,
        help="fork after this turn, or after this step of it (default: after the last turn that has ended)",
    )
    forking.add_argument("--id", dest="new_id", metavar="NEW", help="the id of the new session (default: a fresh one)")
    shortening = _action(actions, "compact", _compact, "let a model's summary take the place of a session's older part")
    shortening.epilog = _EXIT_CODES.replace("; 2", "; 1 if the session cannot be made shorter; 2")
    shortening.add_argument("id", help=_ID)
    shortening.add_argument("--model", metavar="NAME", required=True, help="the model that writes the summary")
    shortening.add_argument("--wire", metavar="NAME", default="openai-chat", help="(default: openai-chat)")
    shortening.add_argument("--base-url", metavar="URL", help="where the model is served (default: the wire's own)")
    shortening.add_argument(
        "--keep",
        metavar="PERCENT",
        type=_percent,
        default=30,
        help="how much of the context window, or of the session where that is not known, stays as it is (default: 30)",
    )
    deleting = _action(actions, "delete", _delete, "forget sessions for good; one that others were forked from stays")
    deleting.add_argument("ids", metavar="id", nargs="+", help=_ID)


def _action(actions: Any, name: str, action: Action, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=what, description=what.capitalize() + ".", epilog=_EXIT_CODES, allow_abbrev=False
    )
    add_store(parser)
    parser.set_defaults(perform=perform, action=action, name=f"lifecycle sessions {name}")
    return parser


def _place(text: str) -> tuple[int, int | None]:
    found = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no place; write TURN or TURN.STEP, such as 2 or 2.1")
    return int(found[1]), int(found[2]) if found[2] else None


def _percent(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,2}", text) is None or not 1 <= int(text) <= 70:
        raise argparse.ArgumentTypeError(f"{text!r} is no share that can stay; give a number from 1 to 70")
    return int(text)


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    with own_output() as out:
        try:
            anyio.run(partial(_perform, args, out))
        except CompactionError as no:
            complain(f"{args.name}: {no}")
            return 1
    return 0


async def _perform(args: argparse.Namespace, out: Output) -> None:
    async with open_store(store_name(args.store)) as store:
        await args.action(store, args, out)


async def _list(store: StoreBase, args: argparse.Namespace, out: Output) -> None:
    sessions = await store.list()
    if args.json:
        for info in sessions:
            out.write(dump(_as_json(info)) + "\n")
        return
    if not sessions:
        what = "does not exist yet" if is_missing(store_name(args.store)) else "holds no sessions"
        out.write(printable(f"{store.where} {what}; `lifecycle run` makes the first one\n"))
        return
    width = max(len(info.id) for info in sessions)
    for info in sessions:
        out.write(printable(_row(info, width)) + "\n")


def _row(info: SessionInfo, width: int) -> str:
    turns = f"{info.turns} turn" + ("" if info.turns == 1 else "s")
    marks = [f"fork of {info.parent.parent}"] if info.parent is not None else []
    marks += ["in use"] if info.locked else []
    row = f"{info.id:<{width}}  {_when(info.updated_at)}  {turns:>8}  {info.title}"
    return row + (f"  ({', '.join(marks)})" if marks else "")


def _when(epoch_ms: int) -> str:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a clock that was far off
        return f"{epoch_ms} ms".rjust(16)


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


async def _show(store: StoreBase, args: argparse.Namespace, out: Output) -> None:
    info = await resolve(store, args.id)
    session = await store.open(info.id, read_only=True)
    if args.json:
        for event in session.events:
            out.write(event_line(event) + "\n")
        return
    came = "" if info.parent is None else f", forked from {info.parent.parent}"
    out.write(printable(f"session {info.id} of {_when(info.created_at)}{came}\n"))
    for line in story_lines(session.events):
        out.write(printable(line) + "\n")
    if session.open_turn is not None:
        what = "is going on" if info.locked else "was never ended: its process was lost"
        out.write(f"--- turn {session.open_turn} {what}\n")


async def _fork(store: StoreBase, args: argparse.Namespace, out: Output) -> None:
    turn, step = args.at or (None, None)
    child = await store.fork((await resolve(store, args.id)).id, turn, step, args.new_id)
    out.write(printable(child.id) + "\n")


async def _compact(store: StoreBase, args: argparse.Namespace, out: Output) -> None:
    from lifecycle.driver.agent import Agent  # the other actions do without
    from lifecycle.policies.compaction import CompactionOptions, compact

    info = await resolve(store, args.id)
    session = await store.open(info.id)
    if session.open_turn is not None:  # an agent would repair it, but this one has no tools to ask about their calls
        raise CallError(
            f"turn {session.open_turn} of session {info.id!r} is still open, because its process was lost; "
            f"`lifecycle run --session {info.id}` goes on with it"
        )
    wire: Any = plugin("lifecycle.wires", args.wire)
    where: Mapping[str, str] = {"base_url": args.base_url} if args.base_url else {}
    async with wire(model=args.model, **where) as model:
        options = CompactionOptions(model, keep=args.keep / 100)
        async with Agent(model, session=session) as agent:
            done = await compact(agent, options)
    out.write(printable(f"{info.id}: {done.replaced} messages gave way to a summary\n"))
    out.write(f"about {done.tokens_before} tokens before, about {done.tokens_after} now\n\n")
    out.write(printable(f"{done.summary}\n"))


async def _delete(store: StoreBase, args: argparse.Namespace, out: Output) -> None:
    going = {info.id: info for info in [await resolve(store, given) for given in args.ids]}
    for id in sorted(going, key=partial(_depth, going), reverse=True):
        await store.delete(id)
        out.write(printable(f"deleted {id}\n"))


def _depth(going: Mapping[str, SessionInfo], id: str) -> int:
    """How many of those that are to go a session descends from: forks go before their parents."""
    depth, parent = 0, going[id].parent
    while parent is not None and parent.parent in going and depth < len(going):
        depth, parent = depth + 1, going[parent.parent].parent
    return depth


async def resolve(store: StoreBase, given: str) -> SessionInfo:
    """The session whose id `given` is, or begins."""
    sessions = {info.id: info for info in await store.list()}
    found = [given] if given in sessions else [id for id in sessions if given and id.startswith(given)]
    if len(found) == 1:
        return sessions[found[0]]
    if found:
        raise CallError(
            f"{given!r} begins {len(found)} sessions, {found[0]!r} and {found[1]!r} among them; give more of the id"
        )
    raise CallError(f"{store.where} holds no session {given!r}; `lifecycle sessions list` tells which there are")
