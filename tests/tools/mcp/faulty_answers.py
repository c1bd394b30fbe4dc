"""An MCP server that answers each call as its argument says, and counts the calls in a file.

Over stdio, or with a port as its third argument over streamable HTTP, or with a fourth one over the
older SSE.
"""

import json
import queue
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOOLS = [{"name": "roll", "inputSchema": {"type": "object"}}]
INFO = {"name": "faulty", "version": "1"}
WORDS = (
    "Paid. But the browser session has expired, so no receipt.",
    "Session terminated",
    "Unknown session",
    "Connection closed",
    "index not initialized",
)
RESULT = '{"content":[{"type":"text","text":"rolled 4"}]}'
ENDS = {
    "lone half": '"result":{"content":[{"type":"text","text":"cut \\ud83d"}]}}',
    "null result": '"result":null}',
    "error as text": '"error":"plain text"}',
    "no message": '"error":{"code":-1,"message":null}}',
    "many lines": f'\n"result":\n{RESULT}\n}}',
    "no JSON": f'"result":{RESULT},}}',
    "cut": f'"result":{RESULT[:-4]}',
    "text as content": '"result":{"content":"rolled 4"}}',
    "odd fields": f'"result":{RESULT[:-1]},"isError":null,"structuredContent":[NaN]}}}}',
    **{words: f'"error":{{"code":-32000,"message":"{words}"}}}}' for words in WORDS},
}
FAULTS = {fault: f'{{"jsonrpc":"2.0","id":ID,{end}' for fault, end in ENDS.items()}
FAULTS["indented"] = "{" + json.dumps({"result": json.loads(RESULT)}, indent=1)[1:-2]
FAULTS["indented"] += ',\n "id": ID,\n "jsonrpc": "2.0"\n}'
FAULTS["no jsonrpc"] = f'{{"id":ID,"result":{RESULT}}}'


def answer(request: dict[str, Any]) -> str:
    result: dict[str, Any] = {"tools": TOOLS}
    match request["method"]:
        case "tools/call":
            with Path(sys.argv[2]).open("a") as file:
                file.write("x")
            return FAULTS[sys.argv[1]].replace("ID", str(request["id"]))
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities}
            result["serverInfo"] = INFO
        case "tools/list" | "ping":
            pass
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


class Handler(BaseHTTPRequestHandler):
    events: "queue.Queue[str]" = queue.Queue()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = answer(request) if "id" in request else ""
        if len(sys.argv) > 4:
            self.events.put(text)
        self._send(b"" if len(sys.argv) > 4 else text.encode(), 200 if text else 202)

    def do_GET(self) -> None:
        if len(sys.argv) <= 4:
            return self._send(b"", 405)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: /post\n\n")
        while True:
            if text := self.events.get():
                lines = "".join(f"data: {line}\n" for line in text.split("\n"))
                self.wfile.write(f"event: message\n{lines}\n".encode())

    do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _send(self, body: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", "one")
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
    for line in sys.stdin:
        if "id" in (request := json.loads(line)):
            print(answer(request), flush=True)
