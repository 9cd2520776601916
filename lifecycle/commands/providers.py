"""`lifecycle providers`: which wires there are, what they read from the environment, and what a server speaks."""

from __future__ import annotations

import argparse
import os
from importlib.metadata import entry_points
from typing import Any

import anyio

from lifecycle.errors import ModelError

from .calls import CallError, plugin
from .jsonlines import dump
from .output import own_output, printable

_READ_BY_ALL = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"]
"""What HTTP clients go by, of which the wires make use."""


def declare(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "providers",
        help="list the wires and their keys, or ask a server what it speaks",
        description="List the wires that `lifecycle run --wire` knows, with the environment variable that holds the "
        "key of each; or ask a server which of them it speaks, which models it serves and how much fits. Asking costs "
        "nothing: the request is empty and gets refused.",
        epilog="Exit code: 0; 1 if the probed server speaks none of the wires; 2 if the call was wrong.",
        allow_abbrev=False,
    )
    parser.add_argument("--probe", metavar="URL", help="ask this server, without a key unless --wire is given")
    parser.add_argument(
        "--wire", metavar="NAME", help="probe for this wire only, with its key from the environment if there is one"
    )
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.set_defaults(perform=perform, name="lifecycle providers")


def perform(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.wire is not None and args.probe is None:
        raise CallError("--wire says what to probe for; give --probe URL too")
    told = _listed() if args.probe is None else anyio.run(_probed, args.probe, args.wire)
    with own_output() as out:
        page = _list_page if args.probe is None else _probe_page
        out.write((dump(told) if args.json else printable(page(told))) + "\n")
    return 0 if args.probe is None or any(wire["speaks"] for wire in told["wires"]) else 1


def _names() -> list[str]:
    return sorted(entry.name for entry in entry_points(group="lifecycle.wires"))


def _listed() -> dict[str, Any]:
    wires: list[dict[str, Any]] = []
    for name in _names():
        wire: Any = plugin("lifecycle.wires", name)
        variable = getattr(wire, "key_variable", None)
        wires.append(
            {
                "name": name,
                "base_url": getattr(wire, "default_base_url", None),
                "key_variable": variable,
                "key_is_set": bool(variable and os.environ.get(variable, "").strip()),
            }
        )
    providers = sorted(entry.name for entry in entry_points(group="lifecycle.providers"))
    return {"wires": wires, "read_by_all": _READ_BY_ALL, "providers": providers}


async def _probed(url: str, only: str | None) -> dict[str, Any]:
    asked = {name: plugin("lifecycle.wires", name) for name in (_names() if only is None else [only])}
    probes: dict[str, Any] = {}
    wrong: list[ModelError] = []

    async def probe(name: str, wire: Any) -> None:
        try:
            # A key goes only where somebody said that this is the server it is for.
            model = wire(base_url=url) if only is not None else wire(base_url=url, env=None)
            probes[name] = await model.probe()
        except ModelError as error:
            wrong.append(error)

    async with anyio.create_task_group() as group:  # at once: a server that does not answer is waited for only once
        for name, wire in asked.items():
            if hasattr(wire, "probe"):
                group.start_soon(probe, name, wire)
    if wrong:
        raise CallError(wrong[0].failure.message) from wrong[0]
    found = [(name, probes[name]) for name in asked if name in probes]
    wires = [{"name": name, "speaks": one.speaks, "base_url": one.base_url, "why": one.why} for name, one in found]
    models = {served.id: served.context_window for _, one in found for served in one.models}
    return {
        "url": url,
        "wires": wires,
        "models": [{"id": id, "context_window": window} for id, window in models.items()],
    }


def _list_page(told: dict[str, Any]) -> str:
    lines = ["wire                key                         stands at unless --base-url is given"]
    for wire in told["wires"]:
        key = f"{wire['key_variable']} ({'set' if wire['key_is_set'] else 'not set'})"
        lines.append(f"{wire['name']:<19} {key:<27} {wire['base_url']}")
    lines.append(f"all of them read {', '.join(told['read_by_all'])}")
    return "\n".join([*lines, f"without an address: {', '.join(told['providers'])}"])


def _probe_page(told: dict[str, Any]) -> str:
    lines: list[str] = []
    for wire in told["wires"]:
        lines.append(
            f"{wire['name']}: yes, at {wire['base_url']}" if wire["speaks"] else f"{wire['name']}: no ({wire['why']})"
        )
    for model in told["models"]:
        window = f", {model['context_window']:,} tokens fit" if model["context_window"] else ""
        lines.append(f"model {model['id']}{window}")
    return "\n".join(lines)
