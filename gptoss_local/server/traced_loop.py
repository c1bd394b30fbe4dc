"""The loop of answers and calls, with a span of each call in the trace."""

from gptoss_local.events import ToolCall
from gptoss_local.server.tracing import traced_tool
from gptoss_local.talk.loop import Loop
from gptoss_local.talk.tools import Call, ToolResult


class TracedLoop(Loop):
    async def _run_call(self, call: ToolCall, made: Call) -> ToolResult:
        return await traced_tool(call.name, super()._run_call(call, made), call.id)
