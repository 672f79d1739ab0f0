"""Imported once by the process from which others are forked (programs.template). A fork imports framejit itself."""
import os

import op_sweep_worker

op_sweep_worker.op_database()
assert len(os.listdir("/proc/self/task")) == 1, "forks would lack a thread"
