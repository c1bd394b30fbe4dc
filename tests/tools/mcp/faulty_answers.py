"""An MCP server over stdio that answers each call as its argument says, and counts the calls."""

import json
import sys
from pathlib import Path
from typing import Any

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
FAULTS["float id"] = f'{{"jsonrpc":"2.0","id":ID.0,"result":{RESULT}}}'
FAULTS["only an id"] = '{"id":ID}'
FAULTS["no jsonrpc"] = f'{{"id":ID,"result":{RESULT}}}'
NO_ID = '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"out of dice"}}'


def answer(request: dict[str, Any], fault: str, calls: Path) -> str:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    match request["method"]:
        case "tools/call":
            with calls.open("a") as file:
                file.write("x")
            return FAULTS.get(fault, NO_ID).replace("ID", str(request["id"]))
        case "initialize":
            known: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            message["result"] = known | {"serverInfo": {"name": "faulty", "version": "1"}}
        case "tools/list":
            message["result"] = {"tools": [{"name": "roll", "inputSchema": {"type": "object"}}]}
        case "ping":
            message["result"] = {}
        case _:
            message["error"] = {"code": -32601, "message": "Method not found"}
    return json.dumps(message)


if __name__ == "__main__":
    for line in sys.stdin:
        if "id" in (received := json.loads(line)):
            print(answer(received, sys.argv[1], Path(sys.argv[2])), flush=True)
