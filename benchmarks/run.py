"""Runs benchmarks one after the other and keeps what each prints, with the command that repeats it, in
benchmarks/results/NAME.txt.

    python benchmarks/run.py [NAME ...]        all of them without a name; they need the machine for themselves
"""
import datetime
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = {"calls": [], "guards": [], "breaks": [], "capture": ["--torch-compile"], "kernels": ["--torch-compile"],
         "cold": ["--torch-compile"], "compile": ["--torch-compile"], "memory": ["--torch-compile"],
         "models": ["--torch-compile"], "growth": [], "neighbour": [], "updates": [], "costs": []}


def machine():
    with open("/proc/cpuinfo") as lines:
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    import torch
    return (f"{datetime.date.today()}, {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before, "
            f"Python {sys.version.split()[0]}, torch {torch.__version__}")


def run(name):
    arguments = [f"benchmarks/{name}.py", *NAMES[name]]
    target = HERE / "results" / f"{name}.txt"
    lines = [f"$ python {' '.join(arguments)}        {machine()}\n"]
    print(lines[0], end="", flush=True)
    environment = {key: value for key, value in os.environ.items() if key not in ("FRAMEJIT_STRICT", "FRAMEJIT_LOGS")}
    with subprocess.Popen([sys.executable, *arguments], cwd=HERE.parent, env=environment, stdout=subprocess.PIPE,
                          text=True) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if child.returncode == 0:
        target.parent.mkdir(exist_ok=True)
        target.write_text("".join(lines))
    return child.returncode


def main():
    names = sys.argv[1:] or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark is named {unknown[0]}; known: {', '.join(NAMES)}")
    failed = [name for name in names if run(name) != 0]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
