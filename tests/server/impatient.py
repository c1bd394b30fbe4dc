"""A scripted server whose questions wait for a second only."""

import runpy

from gptoss_local.server.chats import exchange

exchange.ASK_S = 1.0
runpy.run_module("tests.scripted_engine", run_name="__main__")
