"""FRAMEJIT=1 python anything.py: turns global mode on as soon as the program has imported torch. Until then it imports
nothing.

framejit_startup.pth runs it at interpreter start, if the variable FRAMEJIT is set to something other than 0.
"""
import os
import sys


class _AfterTorch:
    """A finder that lets the other finders find torch, and runs `enable` after torch has been executed."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                enable()
            spec.loader.exec_module = exec_module
        return spec


def enable():
    package = sys.modules.get("framejit")
    if package is not None and not hasattr(package, "_framejit"):
        package.enable_global_mode_at_the_end = True  # this package is the one that imports torch
        return
    try:
        import framejit
    except (ImportError, ValueError) as error:  # a bad setting, or a package built for another torch
        # Any other error would leave a torch that cannot be imported again.
        sys.exit(f"framejit: {error}")
    framejit._framejit.enable_global()


def start():
    # Python reads the start-up files of a virtual environment twice.
    waiting = any(isinstance(finder, _AfterTorch) for finder in sys.meta_path)
    if os.environ["FRAMEJIT"] not in ("", "0") and not waiting and "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())
