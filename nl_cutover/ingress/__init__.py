"""The client of MC's ingress: MCP Streamable HTTP over httpx, host-initiated only."""
