"""Tools of MCP servers, over stdio or streamable HTTP, on the official client (the `mcp` extra).

files = StdioServerParameters(command="my-file-server")
async with McpServer("files", files) as one, McpServer("search", "http://127.0.0.1:8000/mcp") as other:
    async with Agent(model, tools=[read], hooks=offering(one, other)) as agent:
        ...

A server that dies or hangs costs an error result, and is started again when it is next needed. `offering` follows a
server that changes its tools; `tools_of` gives those of the moment.
"""

from __future__ import annotations

from .mcp_server import McpProgress, McpProgressed, McpServer, McpServerError, Restarts
from .mcp_tools import offering, tools_of

__all__ = ["McpProgress", "McpProgressed", "McpServer", "McpServerError", "Restarts", "offering", "tools_of"]
