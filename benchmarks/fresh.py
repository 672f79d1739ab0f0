"""Runs a piece of code in a new process that knows no earlier compile: caches of torch.compile are empty, and the
benchmarks can be imported."""
import json
import os
import subprocess
import sys
import tempfile

# How such code continues once it has `fn` and `inputs`: one plain call, then `compiled`, by the compiler that its
# second argument names.
COMPILE = r"""
torch.set_grad_enabled(False)
fn(**inputs)
if compiler == "framejit":
    import framejit
    compiled = framejit.compile(fn)
else:
    compiled = torch.compile(fn)
"""


def run(code, name, compiler, **settings):
    """(the JSON object of the last line that it prints, its log). If it fails, the program ends."""
    with tempfile.TemporaryDirectory() as cache:
        here = os.path.dirname(os.path.abspath(__file__))
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])),
                   TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FX_GRAPH_CACHE="0", **settings)
        out = subprocess.run([sys.executable, "-c", code, name, compiler], env=env, capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{name}, {compiler}: {out.stderr}")
    return json.loads(out.stdout.strip().splitlines()[-1]), out.stderr
