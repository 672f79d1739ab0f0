"""Imported once by the process from which the workers of op_sweep.py are forked. A fork imports framejit itself."""
import os

import op_sweep_worker

op_sweep_worker.op_database()
assert len(os.listdir("/proc/self/task")) == 1, "forks would lack a thread"
