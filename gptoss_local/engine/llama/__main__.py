"""Load llama.cpp and print the features that it uses here: `python -m gptoss_local.engine.llama`.

`--devices` prints its GPUs as JSON instead. Others run it, as a library built for another processor
ends its process.
"""

import json
import sys

from gptoss_local.engine.llama.library import gpu_devices, system_info

if __name__ == "__main__":
    print(json.dumps(gpu_devices()) if "--devices" in sys.argv else system_info())
