"""Load llama.cpp and print the features that it uses here: `python -m gptoss_local.engine.llama`.

`gptoss doctor` and the installer run it, as a library built for another processor ends its process.
"""

from gptoss_local.engine.llama.library import system_info

if __name__ == "__main__":
    print(system_info())
