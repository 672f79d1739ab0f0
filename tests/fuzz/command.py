"""The command line that the fuzzers share."""
import argparse


def parser(backend=None, count=200):
    """Takes --seed and --count; --backend too if a default is given."""
    made = argparse.ArgumentParser()
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--count", type=int, default=count)
    if backend:
        made.add_argument("--backend", default=backend)
    return made
