"""Runs programs that need a process of their own, without the seconds that importing torch takes each: they are forked
from a process that has imported torch, and nothing else. A fork imports framejit itself, with the settings of its
environment.
"""
import atexit
import concurrent.futures
import functools
import gc
import importlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types


def run(program="", *arguments, file=None, cwd=None, env=None, timeout=300, forked=True, global_mode=False,
        imported=()):
    """As subprocess.run of `python -c program arguments...`, or of `python file arguments...`, with text captured.
    `env`: all variables, by default ours. A program whose environment differs from ours in more than FRAMEJIT_... and
    PYTHONPATH is started as usual, as all are without `forked`: Python and the libraries below torch read their
    variables when they start. `global_mode`: with FRAMEJIT=1, as if the program had imported torch at once.
    `imported`: modules that take seconds too, and have been imported before the fork."""
    env = dict(os.environ if env is None else env) | ({"FRAMEJIT": "1"} if global_mode else {})
    command = ["-c", program] if file is None else [str(file)]
    changed = {name for name, _ in env.items() ^ os.environ.items()} - ({"FRAMEJIT"} if global_mode else set())
    if not forked or not all(name == "PYTHONPATH" or name.startswith("FRAMEJIT_") for name in changed):
        return subprocess.run([sys.executable, *command, *arguments], capture_output=True, text=True, cwd=cwd, env=env,
                              timeout=timeout)
    pipes = [os.pipe(), os.pipe()]
    with concurrent.futures.ThreadPoolExecutor() as readers:
        texts = [readers.submit(read_all, ours) for ours, _ in pipes]
        request = {"command": command, "arguments": arguments, "cwd": str(cwd or os.getcwd()), "env": env,
                   "timeout": timeout, "global_mode": global_mode}
        status = server(*imported)(request, [theirs for _, theirs in pipes])
        out, errors = (text.result() for text in texts)
    if status is None:
        raise subprocess.TimeoutExpired(command, timeout, out, errors)
    return subprocess.CompletedProcess(command, status, out, errors)


def read_all(pipe):
    with open(pipe, encoding="utf-8") as opened:
        return opened.read()


@functools.cache
def server(*imported):
    """Starts at the first use in each process, and ends with it."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(theirs.fileno()), *imported], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()],
                               env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    theirs.close()

    def ask(request, pipes):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        socket.send_fds(ours, [b"2"], pipes)
        for pipe in pipes:
            os.close(pipe)
        return json.loads(process.stdout.readline())
    return ask


@functools.cache
def template():
    """Processes of this context of multiprocessing are forked from one that has imported torch and its op_db. They run
    on one thread: the template has no other, so a fork lacks none."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["op_sweep_template"])
    ours = dict(os.environ)
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", FRAMEJIT_STRICT="1",
                      PYTHONPATH=os.pathsep.join(filter(None, [here, ours.get("PYTHONPATH")])))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(ours)
    return context


def serve(descriptor, imported):
    """Answers each line with the exit status of the program that it describes, null if it took too long."""
    client = socket.socket(fileno=descriptor)
    for module in ("torch", *imported):
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "forks would lack a thread"
    gc.freeze()  # a collection in a fork would copy all of it
    for line in sys.stdin:
        request = json.loads(line)
        pipes = socket.recv_fds(client, 1, 2)[1]
        pid = os.fork()
        if pid == 0:
            client.close()
            status = execute(request, pipes)
            threading._shutdown()  # waits for threads
            atexit._run_exitfuncs()
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)  # ending the interpreter takes a second; tests of that start a process
        for pipe in pipes:
            os.close(pipe)
        print(json.dumps(wait(pid, request["timeout"])), flush=True)


def wait(pid, timeout):
    def stop(*_):
        os.kill(pid, signal.SIGKILL)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(timeout)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if signal.alarm(0) == 0 and status == -signal.SIGKILL else status


def execute(request, pipes):
    """What Python does with a program, and its exit status."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.chdir(request["cwd"])
    for source, descriptor in zip((os.open(os.devnull, os.O_RDONLY), *pipes), range(3)):
        os.dup2(source, descriptor)
        os.close(source)
    os.environ.clear()
    os.environ.update(request["env"])
    option, *rest = request["command"]
    if rest:
        path, text = "<string>", rest[0]
        sys.path[0] = ""
    else:
        path, text = option, open(option, encoding="utf-8").read()
        sys.path[0] = os.path.dirname(path)
    sys.path[1:1] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [option, *request["arguments"]]
    sys.stdin, sys.stdout, sys.stderr = (open(n, "wr"[n == 0], buffering=1, closefd=False) for n in range(3))
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if not rest:
        main.__file__ = path
    if request["global_mode"]:
        import _framejit_startup
        _framejit_startup.enable()
    try:
        exec(compile(text, path, "exec"), main.__dict__)
    except SystemExit as exit:
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
        return 1
    return 0


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
