"""Training in processes of its own: scripts under FRAMEJIT=1, and data-parallel training over gloo."""
import json
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import framejit
import programs

pytestmark = pytest.mark.nothing_captured  # here: the other processes compile

SCRIPT = """
import json
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randn(64, 1))
losses = []
for epoch in range(2):
    model.train()
    for x, y in torch.utils.data.DataLoader(data, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item())
losses.append(torch.rand(1).item())
seen = {}
if "FRAMEJIT" in __import__("os").environ:
    import framejit
    seen = {key: value for key, value in framejit.stats().items() if key in ("graphs", "fallbacks", "backward_runs")}
print(json.dumps([losses, seen]))
"""


def losses_of(path, **settings):
    env = {key: value for key, value in os.environ.items() if key != "FRAMEJIT"} | settings
    done = programs.run(file=path, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_script_under_framejit_1(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    (plain, _), (ours, seen) = losses_of(path), losses_of(path, FRAMEJIT="1")
    assert plain[-1] == ours[-1], "the generator"
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(plain), rtol=1e-5, atol=1e-6)
    assert seen["graphs"] > 0 and seen["backward_runs"] >= 6, seen  # of 8: what runs once is not compiled


# ---- two processes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.unused = nn.Linear(3, 3)

    def forward(self, x, all_=False):
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x.sum(1) + (self.unused.weight.sum() if all_ else 0)


def train(rank, way, unused):
    """The gradients of three steps, and what was reduced when: with a hook on the first layer, whose gradient comes
    last."""
    torch.manual_seed(0)
    model, log = Net(), []
    if not unused:
        del model.unused
    inner = {"plain": lambda m: m, "inside": framejit.compile, "around": lambda m: m}[way](model)
    parallel = DistributedDataParallel(inner, find_unused_parameters=unused, bucket_cap_mb=0.005)

    def reduce(state, bucket):
        log.append("bucket")
        summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return summed.then(lambda future: future.value()[0] / dist.get_world_size())
    parallel.register_comm_hook(None, reduce)
    model.layers[0].weight.register_hook(lambda g: log.append("first layer"))
    run, grads = framejit.compile(parallel) if way == "around" else parallel, []
    for k in range(3):
        torch.manual_seed(10 * k + rank)
        x, y = torch.randn(8, 32), torch.randn(8)
        if k == 1:
            with parallel.no_sync():
                F.mse_loss(run(x * 2), y).backward()
        log.clear()
        F.mse_loss(run(x), y).backward()
        grads.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        for p in model.parameters():
            p.grad = None
    return grads, list(log)


def worker(rank, folder, way, unused):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        plain, when = train(rank, "plain", unused)
        framejit.reset()
        ours, our_when = train(rank, way, unused)
        stats = framejit.stats()
        torch.save([plain, when, ours, our_when, stats], f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="not tested: gloo")
@pytest.mark.parametrize("unused", [False, True], ids=["", "unused parameters"])
@pytest.mark.parametrize("way", ["inside", "around"])
def test_data_parallel(way, unused, tmp_path):
    programs.template()
    mp.start_processes(worker, (str(tmp_path), way, unused), nprocs=2, start_method="forkserver")
    for rank in range(2):
        plain, when, ours, our_when, stats = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        for step, (want, got) in enumerate(zip(plain, ours)):
            for i, (a, b) in enumerate(zip(want, got)):
                assert (a is None) == (b is None), f"step {step}, parameter {i}: {b} instead of {a}"
                if a is not None:
                    torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5,
                                               msg=lambda m: f"rank {rank}, step {step}, parameter {i}: {m}")
        assert when.index("bucket") < when.index("first layer"), "eager reduces while its backward runs"
        assert our_when == when
        assert way == "around" or stats["backward_runs"] >= 3, stats
