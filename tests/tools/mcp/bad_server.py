"""An MCP server over stdio that speaks the protocol of 2025 itself, and misbehaves on demand.

Its argument names the fault, as does the name of the called tool.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".")
FIRST = FOLDER / "started-once"
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request: dict[str, Any], **result: Any) -> None:
    send(id=request["id"], result=result)


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        if FAULT == "stubborn":
            time.sleep(3600)
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **more}


def tools() -> list[dict[str, Any]]:
    match FAULT:
        case "schemas":
            return [
                tool("good"),
                tool("text", inputSchema={"type": "string"}),
                tool("empty", inputSchema={}),
                tool("long", inputSchema={"description": "x" * 20_000}),
                tool("list", inputSchema={"type": "object", "properties": [1]}),
                tool("required", inputSchema={"type": "object", "required": "a"}),
                tool("banana", inputSchema={"properties": {"a": {"type": "banana"}}}),
            ]
        case "no-schema":
            return [tool("f"), tool("g", inputSchema="any"), {"a": 1}, 7, tool("h", title=3)]
        case "names":
            names = ["a b", "a_b", "a_b", "a.b", "ü", "n" * 80, "n" * 90, "find_tools", ""]
            return [tool(name) for name in names]
        case "description":
            return [tool("f", description="long " * 10_000)]
        case "changes":
            changed = FIRST.exists()
            return [tool("f", title=f"changed: {changed}"), *([tool("grown")] if changed else [])]
    calls = [
        "f",
        "line",
        "flood",
        "garbage",
        "big",
        "shape",
        "odd",
        "batch",
        "bytes",
        "ask",
        "wait",
        "die",
        "error",
    ]
    promising = tool("promised", outputSchema={"type": "object", "required": ["x"]})
    return [*map(tool, calls), promising]


def list_tools(request: dict[str, Any]) -> None:
    cursor = int(request.get("params", {}).get("cursor", 0))
    match FAULT:
        case "pages":
            page = [tool(f"tool_{n}") for n in range(cursor, cursor + 20)]
            more = {"nextCursor": str(cursor + 20)} if cursor < 480 else {}
            answer(request, tools=page, **more)
        case "endless-pages":
            answer(request, tools=[tool(f"tool_{cursor}")], nextCursor=str(cursor + 1))
        case "dies-after-list":
            answer(request, tools=tools())
            if not FIRST.exists():
                FIRST.touch()
                sys.exit(1)
        case "no-tools":
            send(id=request["id"], error={"code": -32601, "message": "Method not found"})
        case "tools-as-text":
            answer(request, tools="f, g")
        case "dies-at-list":
            sys.exit("no database")
        case _:
            answer(request, tools=tools())


def call(request: dict[str, Any]) -> None:
    match request["params"]["name"]:
        case "line":
            while True:
                sys.stdout.write("x" * 65_536)
        case "flood":
            message = {"level": "info", "data": "x"}
            while True:
                send(method="notifications/message", params=message)
        case "garbage":
            while True:
                print("Listening on port 3000", flush=True)
        case "big":
            answer(request, content=[{"type": "text", "text": "y" * 5_000_000 + "end"}])
        case "shape":
            answer(request, content=3)
        case "odd":
            known = {"type": "text", "text": "words"}
            answer(request, content=[{"type": "video", "data": "x"}, known, {"type": "image"}, 5])
        case "batch":
            result = {"content": [{"type": "text", "text": "in a batch"}]}
            news = {"jsonrpc": "2.0", "method": "notifications/message"}
            params = {"level": "info", "data": "x"}
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            print(json.dumps([news | {"params": params}, reply]), flush=True)
        case "bytes":
            sys.stdout.buffer.write(b"\xff\xfe\x00 no text\n\n[]\nnull\n")
            print(f"DEBUG got {json.dumps(request)}", flush=True)
            print(json.dumps({"id": request["id"], "msg": "a log\nas JSON"}) * 2, flush=True)
            time.sleep(0.5)  # the answer is still to come
            done(request)
        case "ask":
            ask(request)
        case "wait":
            wait(request)
        case "die":
            sys.exit("out of luck, MY_SECRET_VALUE")
        case "error":
            send(id=request["id"], error={"code": -32602, "message": "a must be MY_SECRET_VALUE"})
        case "grown" | "f" if FAULT == "changes":
            with FIRST.open("a") as calls:
                calls.write("x")
            send(method="notifications/tools/list_changed")
            done(request)
        case "promised":
            answer(request, content=[], structuredContent={"y": 1})
        case _:
            done(request)


def done(request: dict[str, Any]) -> None:
    text = json.dumps(request["params"].get("arguments"))
    answer(request, content=[{"type": "text", "text": text}])


def ask(request: dict[str, Any]) -> None:
    """Ask for a feature that we do not offer, and return the reply."""
    said = []
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    asked = {
        "sampling/createMessage": {"messages": [message], "maxTokens": 9},
        "elicitation/create": {"message": "?", "requestedSchema": OBJECT},
        "roots/list": {},
        "no/such": {},
        "ping": {},
    }
    for method, params in asked.items():
        send(id=f"mine-{method}", method=method, params=params)
        back = receive()
        said.append(f"{method}: {back.get('error', {}).get('message', 'ok')}")
    answer(request, content=[{"type": "text", "text": "\n".join(said)}])


def wait(request: dict[str, Any]) -> None:
    (FOLDER / "waiting").touch()
    message = receive()
    (FOLDER / "cancelled").write_text(json.dumps([request["id"], message]))


def main() -> None:
    match FAULT:
        case "hang":
            time.sleep(3600)
        case "exit":
            sys.exit("ModuleNotFoundError: MY_SECRET_VALUE is missing")
        case "flood-at-start":
            while True:
                print("Listening on port 3000", flush=True)
        case "bom":
            sys.stdout.buffer.write("\ufeff".encode())
        case "chatty":
            print("Listening on port 3000", flush=True)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (FOLDER / "pid").write_text(str(os.getpid()))
        case "stderr":
            for _ in range(200):
                os.write(2, b"MY_SECRET_VALUE " * 4000 + b"\n")
    while True:
        request = receive()
        match request.get("method"):
            case "initialize":
                version, info = "2025-06-18", {"name": "bad", "version": "1"}
                answer(request, protocolVersion=version, capabilities={}, serverInfo=info)
            case "tools/list":
                list_tools(request)
            case "tools/call":
                call(request)
            case _ if "id" in request:
                send(id=request["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
