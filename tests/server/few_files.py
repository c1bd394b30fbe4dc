"""`gptoss` where the system allows few descriptors: a soft and a hard limit, as in `ulimit -n`."""

import os
import resource
import runpy

if __name__ == "__main__":
    soft, hard = map(int, os.environ["N_FILES"].split(","))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    runpy.run_module("gptoss_local", run_name="__main__")
