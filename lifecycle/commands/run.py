"""`lifecycle run PROMPT`: one turn with a real provider, or with the embedded demo provider."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import anyio
from anyio.abc import TaskStatus

from lifecycle.driver.agent import Agent
from lifecycle.driver.feed import Durable
from lifecycle.driver.options import AgentOptions
from lifecycle.services.hooks import Hooks
from lifecycle.services.model import Model
from lifecycle.services.workspace import workspace_tools
from lifecycle.vocabulary.events import TurnEnd
from lifecycle.vocabulary.failures import USER_CANCEL, Aborted, Completed, TurnEndReason

from .calls import CallError, add_store, open_store, plugin, plugins
from .jsonlines import line_of
from .output import Console, own_output
from .transcript import Tally, Transcript, told

INTERRUPTED = 130


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    wires = ", ".join(sorted(plugins("lifecycle.wires"))) or "openai-chat"
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run one turn and keep it in a session",
        description="Run one turn: stream the answer, the tool calls and what comes of them, and keep the session. "
        "Without a provider the embedded demo provider answers, which follows a script and is no model.",
        epilog="Exit code: 0 if the turn completed, 1 if it ended otherwise, 2 if the call was wrong or the store "
        "cannot be used, 130 if it was ended by Ctrl-C (once cancels the turn, twice ends the process).",
    )
    parser.add_argument("prompt", help="what the agent is to do; - reads it from standard input")
    provider = parser.add_argument_group("provider")
    provider.add_argument("--base-url", metavar="URL", help="where the API stands, such as http://127.0.0.1:8080/v1")
    provider.add_argument("--model", metavar="NAME", help="which model to ask for")
    provider.add_argument("--wire", default="openai-chat", help=f"what the API speaks: {wires} (default: %(default)s)")
    provider.add_argument("--local", action="store_true", help="run a small model on this machine (the `local` extra)")
    provider.add_argument("--max-tokens", metavar="N", type=_positive, help="the token ceiling of each request")
    provider.add_argument("--effort", help="the reasoning effort")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument(
        "--workspace", metavar="PATH", type=Path, default=Path(), help="the folder that the tools may read (default: .)"
    )
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print every event as a line of JSON instead")
    parser.set_defaults(perform=perform, name="lifecycle run")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    prompt = _prompt(args.prompt)
    workspace = _workspace(args.workspace)
    with own_output() as out:
        return anyio.run(partial(_run, args, prompt, workspace, out))


def _prompt(given: str) -> str:
    prompt = sys.stdin.read() if given == "-" else given
    if not prompt.strip():
        raise CallError("the prompt is empty; say what the agent is to do")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise CallError("the prompt is no valid text in the encoding of this terminal; use UTF-8") from None
    return prompt


def _workspace(given: Path) -> Path:
    if not given.is_dir():
        what = "is not a folder" if given.exists() else "does not exist"
        raise CallError(f"the workspace {given} {what}; name an existing folder with --workspace")
    return given.resolve()


@asynccontextmanager
async def _provider(args: argparse.Namespace, hooks: Hooks) -> AsyncGenerator[tuple[Model, str]]:
    """The model that the call asks for, and a line that says which it is."""
    if args.local:
        if args.base_url:
            raise CallError("--local runs its own server; leave out --base-url, or leave out --local")
        local: Any = plugin("lifecycle.providers", "local")
        async with local(model=args.model) as model:
            yield model, f"asking {model.model} on this machine"
    elif args.base_url or args.model:
        if not args.model:
            raise CallError("--base-url needs the name of a model too: --model NAME")
        wire: Any = plugin("lifecycle.wires", args.wire)
        where: Mapping[str, str] = {"base_url": args.base_url} if args.base_url else {}
        async with wire(model=args.model, **where) as model:
            yield model, f"asking {args.model} over {args.wire}"
    else:
        demo: Any = plugin("lifecycle.providers", "demo")
        async with demo(hooks) as model:
            yield model, "no provider was named: the embedded demo provider answers, which is a script and no model"


async def _run(args: argparse.Namespace, prompt: str, workspace: Path, out: TextIO) -> int:
    hooks = Hooks()
    options = AgentOptions(system=args.system, max_tokens=args.max_tokens, effort=args.effort)
    async with open_store(args.store) as store, _provider(args, hooks) as (model, which):
        session = await store.create()
        agent = Agent(model, tools=workspace_tools(workspace), hooks=hooks, session=session, options=options)
        async with agent:
            if args.json:
                reason = await _as_json(agent, prompt, out)
            else:
                reason = await _as_transcript(agent, prompt, which, out)
            await session.flush()
    if isinstance(reason, Completed):
        return 0
    return INTERRUPTED if isinstance(reason, Aborted) and reason.reason == USER_CANCEL else 1


async def _as_transcript(agent: Agent, prompt: str, which: str, out: TextIO) -> TurnEndReason | None:
    console = Console(out, sys.stderr)
    transcript = Transcript(console, agent.hooks)
    console.say(f"({which})")
    try:
        async with _interruptible(agent, console):
            agent.followup(prompt)
            await agent.when_idle()
    finally:
        console.close()
    _summarise(console, agent, transcript.tally)
    return transcript.tally.reason


def _summarise(console: Console, agent: Agent, tally: Tally) -> None:
    how = "did not start" if tally.reason is None else told(tally.reason)
    console.say(f"The turn {how}: {tally}.")
    console.say(f"Read it again: lifecycle sessions show {agent.session.id}")


async def _as_json(agent: Agent, prompt: str, out: TextIO) -> TurnEndReason | None:
    reason: TurnEndReason | None = None
    async with _interruptible(agent, None):
        stream = agent.events()
        agent.followup(prompt)
        async for occurrence in stream:
            out.write(line_of(occurrence) + "\n")
            if isinstance(occurrence, Durable) and isinstance(occurrence.event.data, TurnEnd):
                reason = occurrence.event.data.reason
        out.flush()
    return reason


@asynccontextmanager
async def _interruptible(agent: Agent, console: Console | None) -> AsyncGenerator[None]:
    """Within the block Ctrl-C cancels the turn, and a second one ends the process."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_interrupts, agent, console)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _watch_interrupts(
    agent: Agent, console: Console | None, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        task_status.started()
        cancelled = False
        async for _ in interrupts:
            if cancelled:
                os._exit(INTERRUPTED)
            cancelled = True
            if console is not None:
                console.say("Cancelling the turn; Ctrl-C once more ends the process.")
            agent.cancel(USER_CANCEL)
