"""An MCP server without the official library: `python odd_mcp_server.py FILE`. It says what stands there, right or not.

The file is read anew for each request: `{"tools": [...], "results": {NAME: ...}}`. Each call says that the tools
changed; with `"silent": true` nobody who then asks for them is answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def send(**said: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **said}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    asked: dict[str, Any] = json.loads(line)
    params: dict[str, Any] = asked.get("params", {})
    script: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    match asked.get("method"):
        case "initialize":
            send(
                id=asked["id"],
                result={
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "odd", "version": "1"},
                },
            )
        case "tools/list" if script.get("silent"):
            Path(f"{sys.argv[1]}.asked").touch()
        case "tools/list":
            send(id=asked["id"], result={"tools": script["tools"], "nextCursor": script.get("cursor")})
        case "tools/call":
            send(method="notifications/tools/list_changed")
            send(id=asked["id"], result=script["results"][params["name"]])
        case _ if "id" in asked:
            send(id=asked["id"], error={"code": -32601, "message": "unknown"})
        case _:
            pass
