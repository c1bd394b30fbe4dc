"""Measure how long `gptoss run nano` takes to its first token, from first use to warm.

    python bench/first_token.py [--rounds N]

Every round starts in an empty home: first use (nano is unpacked and converted), cold (no server),
unloaded (server without the model), warm. Prints medians of the time since the command started.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

COMMAND = [sys.executable, "-m", "gptoss_local"]
ASK = [*COMMAND, "run", "nano", "What is the capital of France?", "--json"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    times_s: dict[str, list[float]] = {}
    for _ in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as home:
            environment = os.environ | {"GPTOSS_HOME": home, "GPTOSS_PORT": "11998"}
            for state, seconds in one_round(environment).items():
                times_s.setdefault(state, []).append(seconds)
    for state, values in times_s.items():
        print(f"{state}: first token after {statistics.median(values):.2f} s")


def one_round(environment: dict[str, str]) -> dict[str, float]:
    def run(*arguments: str) -> None:
        subprocess.run([*COMMAND, *arguments], env=environment, stderr=subprocess.DEVNULL)

    found = {"first use": first_token_s(environment)}
    run("stop")
    time.sleep(1)
    found["cold, no server"] = first_token_s(environment)
    found["warm"] = first_token_s(environment)
    run("stop", "nano")
    found["server without the model"] = first_token_s(environment)
    run("stop")
    time.sleep(1)
    return found


def first_token_s(environment: dict[str, str]) -> float:
    start_s = time.perf_counter()
    process = subprocess.Popen(
        ASK,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start_s
        line += process.stdout.read()
    if process.returncode:
        raise SystemExit(f"a request failed: {line.decode()}")
    return seconds


if __name__ == "__main__":
    main()
