"""compile(opt.step): every optimizer of torch, with its flags, is one graph without breaks, and few kernels.

The forward and the backward of these programs are plain. The first step makes the state, so it is a graph of its own.
"""
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler

import framejit
from check import check
from steps import Program, check_step, regression

OPTIMIZERS = {
    "sgd": lambda p, **f: optim.SGD(p, 0.1, **f),
    "sgd, nesterov": lambda p, **f: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **f),
    "sgd, nesterov without decay": lambda p, **f: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, **f),
    "sgd, dampening": lambda p, **f: optim.SGD(p, 0.05, momentum=0.9, dampening=0.1, **f),
    "adam": lambda p, **f: optim.Adam(p, 0.01, weight_decay=0.01, **f),
    "adam, amsgrad": lambda p, **f: optim.Adam(p, 0.01, amsgrad=True, **f),
    "adamw": lambda p, **f: optim.AdamW(p, 0.01, weight_decay=0.05, **f),
    "rmsprop": lambda p, **f: optim.RMSprop(p, 0.01, momentum=0.5, weight_decay=0.01, **f),
    "rmsprop, centered": lambda p, **f: optim.RMSprop(p, 0.01, centered=True, **f),
    "adagrad": lambda p, **f: optim.Adagrad(p, 0.05, lr_decay=0.01, weight_decay=0.01, **f),
    "adadelta": lambda p, **f: optim.Adadelta(p, 0.5, weight_decay=0.01, **f),
    "nadam": lambda p, **f: optim.NAdam(p, 0.01, **f),
    "nadam, decoupled": lambda p, **f: optim.NAdam(p, 0.01, weight_decay=0.01, decoupled_weight_decay=True, **f),
    "radam": lambda p, **f: optim.RAdam(p, 0.01, weight_decay=0.01, **f),
    "adamax": lambda p, **f: optim.Adamax(p, 0.01, **f),
}
FUSED = ("sgd", "sgd, nesterov", "sgd, nesterov without decay", "sgd, dampening", "adam", "adam, amsgrad", "adamw",
         "adagrad")
CASES = [(name, {}) for name in OPTIMIZERS] + [(name, {"maximize": True}) for name in OPTIMIZERS] \
    + [(name, {"foreach": True}) for name in OPTIMIZERS] + [(name, {"fused": True}) for name in FUSED] \
    + [(name, {"foreach": True, "maximize": True}) for name in ("sgd, nesterov", "adamw")] \
    + [(name, {"fused": True, "maximize": True}) for name in ("sgd, nesterov", "adamw")]
STEPS = 4


def most_graphs(name):
    """RAdam changes its formula after five steps."""
    return 3 if name.startswith("radam") else 2


def steps_of(name):
    return 8 if name.startswith("radam") else STEPS


def stepping(make_optimizer, before=lambda optimizer, model, k: None, after=lambda optimizer: lambda: None,
             target=lambda optimizer, model: optimizer.step):
    """make() of a program that compiles `target`, and steps with it after a plain forward and backward."""
    def make():
        model, x, y = regression()
        optimizer = make_optimizer(model.parameters())
        then = after(optimizer)

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            before(optimizer, model, k)
            result = run()
            then()
            return loss, result
        return Program(target(optimizer, model), step=step, watch=[model, optimizer], zero=False)
    return make


def stepping_alone(make_parameters, make_optimizer):
    """make() of a program that only steps: its gradients are made of the parameters."""
    def make():
        torch.manual_seed(0)
        parameters = make_parameters()
        optimizer = make_optimizer(parameters)

        def step(run, args, k):
            for p in parameters:
                p.grad = p.detach() * 0.1 + k
            run()
        return Program(optimizer.step, step=step, watch=[parameters, optimizer], zero=False)
    return make


def check_steps(make, steps=STEPS, most=2):
    stats = check_step(make, steps=steps, breaks=0, backward=False, graphs=None)
    assert 0 < stats["graphs"] <= most, stats
    return stats


@pytest.mark.parametrize("name, flags", CASES, ids=[f"{name} {' '.join(flags)}" for name, flags in CASES])
def test_a_step_is_one_graph(name, flags):
    check_steps(stepping(lambda p: OPTIMIZERS[name](p, **flags)), steps_of(name), most_graphs(name))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("foreach", [False, True])
def test_other_dtypes(dtype, foreach):
    check_steps(stepping_alone(lambda: [nn.Parameter(torch.randn(n, 3).to(dtype)) for n in (2, 5, 5)],
                               lambda p: optim.AdamW(p, 0.01, foreach=foreach)))


@pytest.mark.parametrize("foreach", [False, True])
def test_parameters_of_two_dtypes(foreach):
    dtypes = (torch.float32, torch.float64) * 2
    check_steps(stepping_alone(lambda: [nn.Parameter(torch.randn(4, 3, dtype=dtype)) for dtype in dtypes],
                               lambda p: optim.Adam(p, 0.01, foreach=foreach)))


# ---- numbers that change

SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "warm up": lambda o: lr_scheduler.LambdaLR(o, lambda k: (k + 1) / 8),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=40),  # changes betas or momentum too
}
CYCLED = ("sgd, nesterov", "adamw")  # OneCycleLR needs momentum or betas that it may cycle
SCHEDULED = [(name, scheduler) for name in (*CYCLED, "rmsprop", "nadam", "adagrad") for scheduler in SCHEDULERS
             if name in CYCLED or scheduler != "one cycle"]


# Every pair once, in turn with foreach.
@pytest.mark.parametrize("name, scheduler, flags",
                         [(*pair, {"foreach": True} if k % 2 else {}) for k, pair in enumerate(SCHEDULED)])
def test_schedulers_compile_once_more(name, scheduler, flags):
    graphs_before = {}

    def count(optimizer, model, k):
        graphs_before[k] = framejit.stats()["graphs"]
    make = stepping(lambda p: OPTIMIZERS[name](p, **flags), count, after=lambda o: SCHEDULERS[scheduler](o).step)
    stats = check_steps(make, steps=12, most=4)
    assert stats["graphs"] == graphs_before[6], "graphs grow with the learning rates"


@pytest.mark.parametrize("name, flags", [("adamw", {}), ("adamw", {"foreach": True}), ("adamw", {"fused": True}),
                                         ("sgd, nesterov", {"foreach": True})])
def test_groups(name, flags):
    def make_optimizer(parameters):
        first, *rest = list(parameters)
        return OPTIMIZERS[name]([{"params": [first], "lr": 0.05}, {"params": rest[:2], "weight_decay": 0.0},
                                 {"params": rest[2:], "lr": 1e-4, "maximize": True}], **flags)
    check_steps(stepping(make_optimizer))


@pytest.mark.parametrize("make_optimizer", [
    lambda p: optim.Adam(p, torch.tensor(0.01)), lambda p: optim.AdamW(p, torch.tensor(0.01), fused=True),
    lambda p: optim.SGD(p, torch.tensor(0.1)), lambda p: optim.SGD(p, torch.tensor(0.1), foreach=True, momentum=0.5)])
def test_settings_that_are_tensors(make_optimizer):
    def shrink(optimizer, model, k):
        for group in optimizer.param_groups:
            group["lr"].mul_(0.9)
    check_steps(stepping(make_optimizer, before=shrink), steps=8)


@pytest.mark.parametrize("make_optimizer", [
    lambda p: optim.AdamW(p, capturable=True),
    lambda p: optim.AdamW(p, capturable=True, foreach=True), lambda p: optim.RAdam(p, capturable=True)])
@pytest.mark.nothing_captured
@pytest.mark.breaks(escaped_traced=1, exception_raised=5)
def test_settings_that_eager_refuses_on_a_cpu(make_optimizer):
    check_step(stepping(make_optimizer), steps=1, breaks=None, backward=None, captured=False, graphs=None)


# ---- parameters without gradients, counts that differ


@pytest.mark.parametrize("flags", [{}, {"foreach": True}, {"fused": True}], ids=["plain", "foreach", "fused"])
def test_missing_gradients(flags):
    """The third step has two patterns of them; then each is met again."""
    def drop(optimizer, model, k):
        model[0].bias.grad = None
        if k % 2:
            model[2].weight.grad = None
    stats = check_step(stepping(lambda p: OPTIMIZERS["adamw"](p, **flags), drop), steps=8, breaks=0, backward=False,
                       graphs=None)
    assert stats["graphs"] <= 5, stats


@pytest.mark.parametrize("name, flags", [("adamw", {}), ("adamw", {"foreach": True}), ("adagrad", {"foreach": True}),
                                         ("nadam", {"foreach": True}), ("radam", {"foreach": True})])
def test_counts_that_differ(name, flags):
    """One parameter has stepped more often than the others: its numbers are computed separately."""
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS[name](model.parameters(), **flags)
        for _ in range(10):
            model[3].weight.grad = torch.ones_like(model[3].weight)
            optimizer.step()

        def step(run, args, k):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            run()
        return Program(optimizer.step, step=step, watch=[model, optimizer], zero=False)
    check_steps(make, steps_of(name), most_graphs(name))


@pytest.mark.parametrize("name", ["adamw", "sgd, nesterov"])
def test_a_state_that_is_loaded(name):
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS[name](model.parameters())

        def step(run, args, k):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            run()
            if k == 3:
                optimizer.load_state_dict(optimizer.state_dict())
        return Program(optimizer.step, step=step, watch=[model, optimizer], zero=False)
    check_steps(make, steps=8, most=3)


@pytest.mark.breaks(escaped_traced=1, exception_raised=5)
def test_a_momentum_that_only_some_parameters_have():
    """The fused op refuses a parameter that gets its first gradient after others."""
    def make():
        parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))]
        optimizer = optim.SGD(parameters, 0.1, momentum=0.5, fused=True)

        def step(run, args, k):
            for p in parameters[:k]:
                p.grad = torch.ones_like(p)
            run()
        return Program(optimizer.step, step=step, watch=[parameters, optimizer], zero=False)
    with pytest.raises(TypeError, match="got NoneType"):
        program = make()
        for k in range(3):
            program.step(program.target, (), k)
    check_step(make, steps=3, breaks=None, graphs=None, backward=False, captured=False)


# ---- what is around the update


def clipped(optimizer, model):
    def update():
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
        return total
    return update


@pytest.mark.parametrize("name, flags", [("sgd", {}), ("sgd, nesterov", {"foreach": True}), ("adamw", {}),
                                         ("adamw", {"foreach": True}), ("adamw", {"fused": True})])
def test_clipping_and_zeroing_inside(name, flags):
    check_steps(stepping(lambda p: OPTIMIZERS[name](p, **flags), target=clipped))


@pytest.mark.breaks("exception_raised")
def test_clipping_without_any_gradient_raises():
    def clip(x):
        y = x * 2
        nn.utils.clip_grad_value_([weight], 1.0)
        return y
    weight, errors = nn.Parameter(torch.ones(3)), []
    for run in (clip, framejit.compile(clip)):
        with pytest.raises(RuntimeError) as raised:
            run(weight)
        errors.append(str(raised.value))
    assert framejit.stats()["break_reasons"]["unknown_callable"] == 1
    assert errors[0] == errors[1]


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_that_are_zeroed(foreach):
    def update(optimizer, model):
        def both():
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return both
    check_steps(stepping(lambda p: OPTIMIZERS["adamw"](p, foreach=foreach), target=update))


def test_a_gradient_that_is_dropped_is_gone():
    def dropped(p):
        before = p.grad
        p.grad = None
        return p.grad is None, before * 2

    def parameter():
        p = nn.Parameter(torch.arange(3.0))
        p.grad = torch.ones(3)
        return p
    plain, ours = parameter(), parameter()
    with torch.no_grad():
        expected, got = dropped(plain), framejit.compile(dropped)(ours)
    assert got[0] is expected[0] is True and torch.equal(got[1], expected[1]) and ours.grad is None
    assert framejit.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("foreach", [None, False])
def test_norms(norm, foreach):
    def clip(a, b, c):
        total = nn.utils.get_total_norm([a, b, c], norm, foreach=foreach)
        return total, torch._foreach_mul([a, b, c], torch.clamp(1 / (total + 1e-6), max=1.0))
    with torch.no_grad():
        check(clip, torch.randn(4, 3), torch.randn(7), torch.randn(2, 5))


@pytest.mark.parametrize("flags", [{}, {"foreach": True}], ids=["plain", "foreach"])
def test_hooks(flags):
    def make_optimizer(parameters):
        optimizer = OPTIMIZERS["adamw"](parameters, **flags)
        optimizer.seen = []
        optimizer.register_step_pre_hook(lambda o, args, kwargs: o.seen.append("before"))
        optimizer.register_step_post_hook(lambda o, args, kwargs: o.seen.append("after"))
        return optimizer
    check_steps(stepping(make_optimizer))


def test_closures():
    """The closure's backward is plain, or it is what breaks."""
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS["adamw"](model.parameters())

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        return Program(optimizer.step, step=lambda run, args, k: run(closure), watch=[model, optimizer], zero=False)
    check_step(make, steps=4, breaks=None, backward=None, graphs=None)


def test_a_profiler_sees_the_step():
    model, x, y = regression()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    step = framejit.compile(optimizer.step)
    F.mse_loss(model(x), y).backward()
    for _ in range(3):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    assert "Optimizer.step#AdamW.step" in {event.name for event in profiler.events()}
    breaks = framejit.stats()["graph_breaks"]
    step()
    assert framejit.stats()["graph_breaks"] == breaks, "the profiler is gone, and so are its breaks"


def test_a_range_around_a_break():
    def broken(x):
        with torch.autograd.profiler.record_function("range"):
            x = x * 2
            torch._dynamo.graph_break()
            return x + 1
    import torch._dynamo  # noqa: F401
    with torch.no_grad():
        check(broken, torch.randn(3), compiles=2, breaks=5)


# ---- kernels


def test_many_parameters_have_few_kernels_and_one_region():
    """60 tensors of three shapes: a kernel for each shape, all in one parallel region, nothing allocated or copied."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in [(64, 48), (48,), (96, 8)] * 20]
    for p in parameters:
        p.grad = torch.randn_like(p)
    for flags in ({}, {"foreach": True}, {"fused": True}):
        framejit.reset()
        optimizer = optim.AdamW(parameters, 0.01, **flags)
        optimizer.step()
        seen = framejit.explain(optimizer.step)()
        [plan] = [e.artefact for e in seen.events if e.event == "Steps"]
        kernels = [line.strip() for line in plan.split("\n") if line.strip().startswith("kernel k")]
        updates = [line for line in kernels if "grain" in line]
        regions = [int(line.split(" together ")[1]) for line in kernels if " together " in line]
        assert 2 * len(parameters) in regions and len(regions) <= 2, plan
        assert len({line.split(" runs ")[1].split()[0] for line in updates}) <= 4, plan
        assert "allocate" not in plan and "call " not in plan, plan
        before = framejit.stats()
        framejit.compile(optimizer.step)()
        assert framejit.stats()["graph_breaks"] == before["graph_breaks"] == 0


def test_dropped_models_are_freed():
    """A compiled step keeps nothing of a model that the program drops, and its entries make room for the next step."""
    framejit.reset()
    for _ in range(7):
        model = nn.Linear(3, 3)
        optimizer = optim.AdamW(model.parameters())
        step = framejit.compile(optimizer.step)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            step()
        weights = [weakref.ref(w) for w in model.parameters()]
        del model, optimizer, step
        gc.collect()
        assert [w() for w in weights] == [None, None]
    assert framejit.stats()["graphs"] == 14 and framejit.stats()["fallback_reasons"] == {}
