"""Every module of torch's module_db, forward and backward, in training and evaluation; every optimizer of optim_db."""
import pytest
import torch

import op_sweep_worker
from steps import Program, check_step, mlp

op_sweep_worker.op_database()  # its import replaces what torch's test modules import
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torch.testing._internal.common_optimizers import optim_db  # noqa: E402

SAMPLES = 2  # of each module, in each mode
# Breaks that have nothing to do with gradients, by their reasons: docs/captured.md.
BREAKS = {"GaussianNLLLoss": "data_dependent_jump", "CTCLoss": "data_dependent_size data_dependent_value",
          "BatchNorm1d": "data_dependent_value", "BatchNorm2d": "data_dependent_value",  # without momentum
          "BatchNorm3d": "data_dependent_value"}
CANCELS = {"CrossEntropyLoss"}  # p - 1 in the gradient, where the class is certain: luck="terms" of bounds.py


def name_of(info):
    return info.module_cls.__name__


def samples_of(info, training):
    """The samples as functions that make (module, arguments): twice the same."""
    def inputs():
        torch.manual_seed(0)
        return info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)

    def make_of(i):
        def make():
            sample = inputs()[i]
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
            program = Program(module.train(training), *args, watch=[kwargs])
            program.step = lambda run, args, k: program.forward_and_backward(lambda *a: run(*a, **kwargs), args, k)
            return program
        return make
    return [make_of(i) for i in range(min(SAMPLES, len(inputs())))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.nothing_captured  # where all of a module breaks
@pytest.mark.breaks(data_dependent_value={"BatchNorm2d-train": 1, "BatchNorm3d-train": 1, "CTCLoss": 1},
                    data_dependent_jump={"GaussianNLLLoss": 2}, data_dependent_size={"CTCLoss": 1})
@pytest.mark.fallbacks(run_failed={"FractionalMaxPool2d": 4, "FractionalMaxPool3d": 4})  # eager raises
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", [i for i in module_db if torch.float32 in i.dtypes
                                  and not name_of(i).startswith("Lazy")], ids=name_of)
def test_modules(info, training):
    for make in samples_of(info, training):
        why = BREAKS.get(name_of(info))
        stats = check_step(make, steps=2, breaks=None if why else 0, backward=None, graphs=None,
                           luck="terms" if name_of(info) in CANCELS else "norms")
        assert not why or set(stats["break_reasons"]) <= set(why.split())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", [i for i in optim_db if i.optim_cls is not torch.optim.SparseAdam],
                         ids=lambda info: info.optim_cls.__name__)
def test_optimizers(info):
    """The model compiled, the optimizer plain, with each of its settings."""
    for settings in info.optim_inputs_func(device="cpu"):
        def make():
            torch.manual_seed(1)
            model, x = mlp(), torch.randn(5, 3)
            matrices = info.optim_cls is torch.optim.Muon  # it takes nothing else
            optimizer = info.optim_cls([p for p in model.parameters() if p.dim() == 2 or not matrices],
                                       **settings.kwargs)

            def step(run, args, k):
                def closure():
                    optimizer.zero_grad()
                    loss = run(x).pow(2).mean()
                    loss.backward()
                    return loss
                return optimizer.step(closure)
            return Program(model, step=step, watch=[optimizer], zero=False)
        # In its second step, LBFGS stops where rounding says.
        steps = 1 if info.optim_cls is torch.optim.LBFGS else 2
        check_step(make, steps=steps, graphs=1, backward=None)
