"""`lifecycle run PROMPT`: one turn with a real provider, or with the embedded demo provider."""

from __future__ import annotations

import argparse
import logging
import math
import shlex
import sys
from collections.abc import AsyncGenerator, Container, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from lifecycle.driver.agent import Agent
from lifecycle.driver.options import AgentOptions
from lifecycle.errors import SessionError
from lifecycle.policies.retry import retrying
from lifecycle.services.hooks import Hooks
from lifecycle.services.model import Model
from lifecycle.services.workspace import workspace_tools
from lifecycle.session.repair import torn
from lifecycle.vocabulary.failures import Aborted, Completed, HookCancel

from .approving import Approval, asking
from .calls import CallError, plugin
from .console import Console
from .jsonlines import line_of
from .output import Output, own_output
from .sessions import resolve
from .stopping import Stop, stopping
from .stores import add_store, open_store, shown_name, store_name
from .transcript import Tally, Transcript, told

if TYPE_CHECKING:
    from lifecycle.session.base import StoreBase
    from lifecycle.session.log import Session

_DEFAULT_WIRE = "openai-chat"
_OPTIONS = {"record": "--record", "timeouts": "--patience"}
"""By the argument of a plug-in that may be missing, the option that needs it."""


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run one turn and keep it in a session",
        description="Run one turn: stream the answer, the tool calls and what comes of them, and keep the session. "
        "The answer and the tool lines go to standard output, all else to standard error. "
        "Without a provider the embedded demo provider answers, which follows a script and is no model.",
        epilog="Exit code: 0 if the turn completed; 1 if it ended otherwise, and standard error says how; 2 if the "
        "call was wrong or the store cannot be used; 130 if it was ended by Ctrl-C, which once cancels the turn and "
        "twice ends the process (143 and 129 likewise by SIGTERM and SIGHUP).",
        allow_abbrev=False,
    )
    parser.add_argument("prompt", help="what the agent is to do; - reads it from standard input")
    provider = parser.add_argument_group("provider")
    provider.add_argument("--base-url", metavar="URL", help="where the API stands, such as http://127.0.0.1:8080/v1")
    provider.add_argument("--model", metavar="NAME", help="which model to ask for; with --local, a GGUF file")
    provider.add_argument("--wire", metavar="NAME", help=f"what the API speaks (default: {_DEFAULT_WIRE})")
    provider.add_argument("--local", action="store_true", help="run a small model on this machine (the `local` extra)")
    provider.add_argument("--max-tokens", metavar="N", type=_positive, help="the token ceiling of each request")
    provider.add_argument("--effort", metavar="NAME", help="the reasoning effort, by the provider's name for it")
    provider.add_argument(
        "--patience",
        metavar="SECONDS",
        type=_seconds,
        help="how long the server may be silent (default: 600 before its answer, 300 in it)",
    )
    provider.add_argument(
        "--record",
        metavar="DIR",
        type=Path,
        help="keep each response in this folder, without keys, for lifecycle decode",
    )
    provider.add_argument(
        "--no-retry",
        dest="retry",
        action="store_false",
        help="end the turn with the first request that fails, also where waiting and asking again might help",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument(
        "--workspace", metavar="PATH", type=Path, default=Path(), help="the folder that the tools may read (default: .)"
    )
    add_store(parser)
    parser.add_argument(
        "--session",
        metavar="ID",
        help="go on with this session instead of a new one; the beginning of its id is enough. A turn that a lost "
        "process has left open is closed first; but if it had asked whether a call may run, it asks again",
    )
    parser.add_argument("--ask", action="store_true", help="ask before each tool call whether it may run")
    parser.add_argument("--json", action="store_true", help="print every event as a line of JSON instead")
    parser.set_defaults(perform=perform, name="lifecycle run")


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    prompt = _prompt(args.prompt)
    workspace = _workspace(args.workspace)
    _check_provider(args)
    if args.record is not None:
        _make(args.record)
    with own_output() as out:
        return anyio.run(partial(_run, args, prompt, workspace, out))


def _prompt(given: str) -> str:
    try:
        prompt = sys.stdin.read() if given == "-" else given
        prompt.encode()
    except UnicodeError:
        raise CallError("the prompt is no valid text in the encoding of this terminal; use UTF-8") from None
    if not prompt.strip():
        raise CallError("the prompt is empty; say what the agent is to do")
    return prompt


def _workspace(given: Path) -> Path:
    try:
        if given.is_dir():
            return given.resolve()
        what = "is not a folder" if given.exists() else "does not exist"
    except OSError as wrong:  # no permission on the way there, a name that is too long
        what = f"cannot be used ({wrong.strerror})"
    raise CallError(f"the workspace {given} {what}; name an existing folder with --workspace")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise CallError(f"the folder {folder} for responses cannot be made ({wrong.strerror})") from wrong


def _check_provider(args: argparse.Namespace) -> None:
    remote = {"--base-url": args.base_url, "--model": args.model, "--wire": args.wire}
    named = [option for option, value in remote.items() if value is not None and option != "--model"]
    if args.local and named:
        raise CallError(f"--local runs its own server; leave out {named[0]}, or leave out --local")
    if named and not args.model:
        raise CallError(f"{named[0]} needs the name of a model too: --model NAME")


@asynccontextmanager
async def _provider(args: argparse.Namespace) -> AsyncGenerator[tuple[Model, str]]:
    """The model that the call asks for, and a line that says which it is."""
    told = {"record": args.record, "timeouts": args.patience}
    kept: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if args.local:
        local = _made("local", plugin("lifecycle.providers", "local"), model=args.model, **kept)
        async with local as model:
            yield model, f"{model.model} answers, on this machine."
    elif args.model:
        name = args.wire or _DEFAULT_WIRE
        where: Mapping[str, str] = {"base_url": args.base_url} if args.base_url else {}
        async with _made(name, plugin("lifecycle.wires", name), model=args.model, **where, **kept) as model:
            yield model, f"{args.model} answers, over {name}."
    else:
        async with _made("the demo provider", plugin("lifecycle.providers", "demo"), **kept) as model:
            yield (
                model,
                "No provider was named, so the embedded demo provider answers: it follows a script and is no model.",
            )


def _made(name: str, make: Any, **given: Any) -> Any:
    """A model of the plug-in `make`, which need not know of everything that can be asked for here."""
    try:
        return make(**given)
    except TypeError as wrong:
        for argument, option in _OPTIONS.items():
            if argument in given and f"'{argument}'" in str(wrong):
                raise CallError(f"{name} takes no `{argument}`; leave out {option}") from wrong
        raise


async def _run(args: argparse.Namespace, prompt: str, workspace: Path, out: Output) -> int:
    console = Console(out, Output(sys.stderr))
    with anyio.CancelScope() as starting, stopping(starting, console.abandon) as stop, _notes(console):
        try:
            return await _in_store(args, prompt, workspace, console, stop)
        except SessionError as error:
            if not stop.begun:
                raise
            raise CallError(f"the session is not kept whole: {error}") from error
    console.say("Stopped before the turn began; nothing is kept.")
    return stop.code


async def _in_store(args: argparse.Namespace, prompt: str, workspace: Path, console: Console, stop: Stop) -> int:
    async with open_store(store_name(args.store), make=True) as store:
        # Before the provider: a store that cannot be used is known before anybody is asked. No event, no row.
        tools = workspace_tools(workspace)
        known = {one.name for one in tools}
        session = await (store.create() if args.session is None else _resumed(store, args.session, known, console))
        hooks = retrying() if args.retry else Hooks()
        if args.ask:
            asking(hooks)
        async with _provider(args) as (model, which):
            options = AgentOptions(
                system=args.system, max_tokens=args.max_tokens, effort=args.effort, approve=Approval(console)
            )
            agent = Agent(model, tools=tools, hooks=hooks, session=session, options=options)
            if not args.json:
                console.say(which)
            tally = await _turn(agent, prompt, console, stop, console.out if args.json else None)
    if not args.json:
        console.say(f"Read it again: lifecycle sessions show {_named(args.store)}{session.id}")
    if isinstance(tally.reason, Completed):
        return 0
    return stop.code if stop.asked and isinstance(tally.reason, Aborted | None) else 1


async def _resumed(store: StoreBase, given: str, tools: Container[str], console: Console) -> Session:
    """The session that the call names, to go on with."""
    session = await store.open((await resolve(store, given)).id)
    left = None if session.open_turn is None else torn(session.events)
    if left is not None and left.parked is not None:
        name = left.parked.block.name
        if name not in tools:
            raise CallError(
                f"session {session.id!r} waits for an answer whether {name} may run, and this command has no such "
                "tool; go on with it in the program that has"
            )
        console.say(f"Turn {left.turn} goes on: its process was lost while it asked whether {name} may run.")
    elif left is not None:
        console.say(f"Turn {left.turn} was never ended: its process was lost. It is closed as interrupted.")
    return session


async def _turn(agent: Agent, prompt: str, console: Console, stop: Stop, lines: Output | None) -> Tally:
    """Run one turn and leave the agent, which keeps the session. It is told in `lines` of JSON, or as a transcript."""
    tally = Tally()
    if lines is None:
        Transcript(console, agent.hooks, tally)
    else:
        agent.hooks.listen("session/event", lambda payload: tally.add(payload.event))
    stream = agent.events()  # before the agent is entered, so that its start is told too
    async with agent:
        stop.begin()
        console.out.when_broken = partial(agent.cancel, HookCancel(reason="nobody reads the output any more"))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_asked, agent, console, stop)
                agent.followup(prompt)
                if lines is None:
                    stream.close()
                    await agent.when_idle()
                else:
                    async for occurrence in stream:
                        lines.write(line_of(occurrence) + "\n")
                tasks.cancel_scope.cancel()
        finally:
            console.out.when_broken = _nothing
            console.close()
        console.out.check()
        if lines is None or not isinstance(tally.reason, Completed):
            how = "did not start" if tally.reason is None else told(tally.reason)
            console.say(f"The turn {how if how.endswith('?') else how.rstrip('.') + '.'}")
        if lines is None:
            console.say(f"It took {tally}.")
    return tally


def _nothing() -> None:
    """There is no turn left to cancel."""


def _named(store: str | None) -> str:
    return "" if store is None else f"--store {shlex.quote(shown_name(store))} "


async def _cancel_when_asked(agent: Agent, console: Console, stop: Stop) -> None:
    await stop.wait()
    console.say("Cancelling the turn; once more ends the process.")
    agent.cancel(stop.cause)
    with suppress(SessionError):  # leaving the agent tells
        await agent.session.flush()  # if a tool hangs and the process is ended, what has happened until now is kept


@contextmanager
def _notes(console: Console) -> Generator[None]:
    """Say what is logged as a warning or an error, a line each and without a traceback."""
    handler = _Notes(console)
    logger = logging.getLogger("lifecycle")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Notes(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and any(isinstance(arg, SessionError) for arg in record.args):
            return  # the store will try again; what it cannot keep in the end is an error
        error = record.exc_info[1] if record.exc_info else None
        self._console.say(f"! {record.getMessage()}" + ("" if error is None else f": {type(error).__name__}: {error}"))
