"""Every recipe of the Makefile is a whole shell command, in each way to call make. A comma in $(if) ends its part: what
follows runs in another case."""
import os
import re
import subprocess
from pathlib import Path

from project import ROOT, read, report

WAYS = {"make": {}, "make ALL=1": {"ALL": "1"}, "make with CI=1": {"CI": "1"}}
DECIDES = ("ALL", "CI", "QUICK", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")


def targets(makefile: str) -> list[str]:
    return re.findall(r"^([a-z-]+):.*## ", makefile, re.M)


def check(way: str, settings: dict[str, str], names: list[str], folder: Path = ROOT) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key not in DECIDES} | settings
    printed = subprocess.run(["make", "-n", *names], cwd=folder, env=environment, capture_output=True, text=True)
    if printed.returncode:
        return [f"Makefile: {way} -n: {printed.stderr.strip()}"]
    parsed = subprocess.run(["bash", "-n"], input=printed.stdout, capture_output=True, text=True)
    return [f"Makefile: {way}: {line}" for line in parsed.stderr.splitlines()]


if __name__ == "__main__":
    names = targets(read(Path("Makefile")))
    report("recipes", [finding for way, settings in WAYS.items() for finding in check(way, settings, names)])
