"""Torch's shape functions (Meta kernels) that are written in Python: which ops would need one, and a run of torch's own
samples in which each of them fails.

    python tests/e2e/recorder/python_metas.py                     the ops with a CPU kernel that have no other shape
    python tests/e2e/recorder/python_metas.py ops | gradients | modules     one JSON line: what was recorded, which ops
                                                                            with a Python kernel were in it, what was
                                                                            not recorded and why, and what is wrong

The second form takes the Python kernels away first: one that is called raises. It records samples of op_db, their
gradients, or the modules of module_db in training, and replays each recording: a shape that differs from the executed
op's is wrong. So is a recording that raises anything but a break.
"""
import itertools
import json
import os
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
LIST = os.path.join(HERE, "python_shapes.txt")
UNMET = os.path.join(HERE, "python_unmet.txt")
BREAKS = os.path.join(HERE, "python_breaks.txt")
KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# What torch says where its C++ code reads a traced tensor.
READS = "The tensor has a non-zero number of elements, but its data is not allocated yet."
SAMPLES = {"ops": 6, "gradients": 2, "modules": 3}


def has_python_meta(name):
    import torch
    lines = [line for line in torch._C._dispatch_dump_table(name).split("\n") if line.startswith("Meta:")]
    return any(".py:" in line or "(none)" in line for line in lines)


def with_python_metas():
    """ATen's ops with a kernel for CPU tensors, whose Meta kernel is Python."""
    import torch
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return [name.removeprefix("aten::") for name in sorted(torch._C._dispatch_get_all_op_names())
            if name.startswith("aten::") and any(has_kernel(name, key) for key in KERNELS) and has_python_meta(name)]


def functional_form(name):
    """The op that computes the same and writes nothing, or ""."""
    from recording import Recorder
    text = Recorder.op(name)
    return text.split("functional '")[1].split("'")[0] if "functional '" in text else ""


def unmet(met):
    """The ops that are not in `met` in any form, and that the list of ops without a rule does not name."""
    known = met.union(listed())
    left = [name for name in with_python_metas() if name not in known]
    return [name for name in left if functional_form(name) not in known.union(left)]


def is_covered(name):
    """Whether a rule of ours or a C++ function of torch gives its shapes, or those of the form that writes nothing."""
    from recording import Recorder
    text, functional = Recorder.op(name), functional_form(name)
    if text.endswith((" rule", " typed")) or " typed " in text:
        return True
    return bool(functional) and (" in_place" in text or " drops_out_args" in text) \
        and Recorder.op(functional).endswith(" rule")


def uncovered():
    return [name for name in with_python_metas() if not is_covered(name)]


def listed(path=LIST):
    """A committed list: op -> reason."""
    with open(path) as f:
        lines = [line.split("#", 1) for line in f if line.strip() and not line.startswith("#")]
    return {op: reason.strip() for ops, reason in lines for op in ops.split()}


CALLED = []


def take_away():
    """Each Python kernel becomes one that raises and is noted in CALLED."""
    import torch

    def failing(name):
        def fail(*args, **kwargs):
            CALLED.append(name)
            raise AssertionError(f"the Python shape function of {name} was called")
        return fail
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")
             and has_python_meta(name)]
    torch._meta_registrations._meta_lib_dont_use_me_use_register_meta._destroy()
    library = torch.library.Library("aten", "IMPL", "Meta")
    for name in names:
        library.impl(name.removeprefix("aten::"), failing(name), allow_override=True)
    return library, len(names)


class Unrecorded(Exception):
    """Why a sample has no recording."""


def eager(call, *tensors):
    """The tensors that plain torch returns."""
    from recording import flat_tensors
    try:
        outputs = flat_tensors(call(*tensors))
    except Exception as e:
        raise Unrecorded("eager raises") from e
    if not outputs:
        raise Unrecorded("no tensor is returned")
    if any(t.is_sparse for t in outputs):
        raise Unrecorded("a sparse tensor is returned")
    return outputs


def recorded(make):
    """The recording of make(). A break is not a defect; any other exception is."""
    from symbolic_checks import refusal
    try:
        return make()
    except Exception as e:
        why = "torch reads values" if str(e).startswith(READS) else refusal(e, "break")
        if why is None:
            raise
        raise Unrecorded(why) from e


def replayed(joint, inputs, outputs, tangents):
    """The ops of a recording, and where their shapes are wrong. An error of eager's backward is not a defect."""
    import torch
    try:
        return joint.recorder.ops(), joint.recorder.run(inputs)[1]
    except RuntimeError:
        try:
            torch.autograd.backward([t for t in outputs if t.requires_grad], tangents)
        except RuntimeError as e:
            raise Unrecorded("eager's backward raises") from e
        raise


class Call:
    """A sample as a function of its tensors."""

    def __init__(self, fn, args, kwargs):
        import torch
        from torch.utils import _pytree as pytree
        self.fn = fn
        leaves, self.shape = pytree.tree_flatten([args, kwargs])
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.leaves = leaves
        self.tensors = [leaves[i] for i in self.places]

    def __call__(self, *tensors):
        from torch.utils import _pytree as pytree
        leaves = list(self.leaves)
        for i, t in zip(self.places, tensors):
            leaves[i] = t
        args, kwargs = pytree.tree_unflatten(leaves, self.shape)
        return self.fn(*args, **kwargs)


def check_forward(call):
    """The ops of the recording, and what is wrong."""
    import torch
    from recording import Recording, clone_like
    inputs = [clone_like(t.detach()) for t in call.tensors]
    with torch.no_grad():
        eager(call, *[clone_like(t) for t in inputs])
        recording = recorded(lambda: Recording(call, inputs))
    return recording.recorder.ops(), recording.replay(inputs)[1]


def check_gradients(call):
    import torch
    from recording import clone_like
    from test_joint import Fn, Joint
    inputs = [clone_like(t.detach()).requires_grad_(t.requires_grad) for t in call.tensors]
    outputs = eager(call, *[t * 1 if t.requires_grad else t for t in inputs])
    tangents = [torch.ones_like(t) for t in outputs if t.requires_grad]
    if not tangents or not any(t.requires_grad for t in inputs):
        raise Unrecorded("no gradient")
    joint = recorded(lambda: Joint(Fn(call), inputs))
    return replayed(joint, [clone_like(t.detach()) for t in inputs] + tangents, outputs, tangents)


def op_calls(gradients):
    import torch
    import op_sweep_worker as worker
    for op in worker.op_database():
        if torch.float32 not in op.supported_dtypes("cpu") or gradients and not op.supports_autograd:
            continue
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=gradients),
                                            SAMPLES["gradients" if gradients else "ops"]))
        except Exception:  # the op_db itself cannot make the sample
            continue
        for sample in samples:
            tensors = Call(op.op, [sample.input, *sample.args], sample.kwargs)
            if all(worker.is_strided(t) for t in tensors.tensors):
                yield worker.label_of(op), tensors


def module_calls():
    """The modules of module_db with images and volumes in channels_last too."""
    import torch
    import op_sweep_worker as worker
    from torch.testing._internal.common_modules import module_db
    worker.op_database()
    for info in module_db:
        try:
            samples = list(itertools.islice(info.module_inputs_func(info, device="cpu", dtype=torch.float32,
                                                                    requires_grad=True, training=True),
                                            SAMPLES["modules"]))
        except Exception:
            continue
        for sample in samples:
            made = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train()
            args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
            yield info.name, made, Call(made, list(args), dict(kwargs))


def check_module(module, call):
    import torch
    from recording import clone_like
    from test_joint import Joint, state_of

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, *tensors):
            return call(*tensors)
    inputs = [clone_like(t.detach()).requires_grad_(t.requires_grad) for t in call.tensors]
    outputs = eager(call, *[t * 1 if t.requires_grad else t for t in inputs])
    tangents = [torch.ones_like(t) for t in outputs if t.requires_grad]
    joint = recorded(lambda: Joint(Whole(), inputs))
    state = [t.detach().clone() for _, _, t in state_of(module)]
    return replayed(joint, [clone_like(t.detach()) for t in inputs] + state + tangents, outputs, tangents)


def checks(part):
    import torch
    if part != "modules":
        for name, call in op_calls(part == "gradients"):
            yield name, check_forward if part == "ops" else check_gradients, (call,)
        return
    images = {4: torch.channels_last, 5: torch.channels_last_3d}
    for name, module, call in module_calls():
        yield name, check_module, (module, call)
        if any(t.dim() in images for t in call.tensors):
            for i, t in zip(call.places, call.tensors):
                if t.dim() in images:
                    call.leaves[i] = t.detach().to(memory_format=images[t.dim()]).requires_grad_(t.requires_grad)
            call.tensors = [call.leaves[i] for i in call.places]
            yield name + " channels_last", check_module, (module, call)


def run(part):
    warnings.simplefilter("ignore")
    import torch
    torch.set_num_threads(1)
    count, met, breaks, wrong, python = 0, set(), {}, [], {}
    with_python = set(with_python_metas())
    kept, taken = take_away()
    for name, check, args in checks(part):
        CALLED.clear()
        torch.manual_seed(0)
        try:
            ops, differs = check(*args)
            count += 1
            met.update(with_python.intersection(ops))
            wrong += [f"{name}: {differs}"[:200]] if differs else []
        except Unrecorded as e:
            breaks.setdefault(name, set()).add(str(e))
        except Exception as e:
            wrong.append(f"{name}: {type(e).__name__}: {e}"[:200])
        for op in CALLED:
            python.setdefault(op.removeprefix("aten::"), name)
    print(json.dumps({"taken": taken, "recorded": count, "met": sorted(met), "wrong": wrong, "python": python,
                      "breaks": {name: sorted(why) for name, why in breaks.items()}}))


if __name__ == "__main__":
    if sys.argv[1:]:
        run(sys.argv[1])
    else:
        print("\n".join(uncovered()))
