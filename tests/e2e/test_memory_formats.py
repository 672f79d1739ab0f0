"""Convolutions and poolings in the memory format that is fastest for them: results and strides equal eager's."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh, same_as  # noqa: F401


def weights(dtype=torch.float32, channels=24):
    torch.manual_seed(0)
    make = lambda *sizes: (torch.randn(*sizes) / (sizes[1] * sizes[2] * sizes[3]) ** 0.5).to(dtype)
    c = channels
    return dict(dense=make(c, c, 3, 3), depth=make(c, 1, 3, 3), deep=make(c, 1, 7, 7), up=make(3 * c, c, 1, 1),
                down=make(c, 3 * c, 1, 1), wide=make(3 * c, 1, 3, 3), patch=make(2 * c, c, 2, 2),
                groups=make(c, c // 4, 3, 3), stem=make(c, 3, 3, 3), bias=make(c, 1, 1, 1).view(c),
                scale=make(c, 1, 1, 1).view(c).abs() + 1)


def norm(x, w):
    return F.batch_norm(x, w["bias"] / 2, w["scale"], w["scale"], w["bias"])


def residual(x, w):
    for _ in range(2):
        x = torch.relu(x + norm(F.conv2d(torch.relu(norm(F.conv2d(x, w["dense"], None, 1, 1), w)), w["depth"],
                                         w["bias"], 1, 1, 1, x.shape[1]), w))
    return F.max_pool2d(x, 3, 2, 1)


def mobile(x, w):
    y = F.hardswish(F.conv2d(x, w["up"]))
    y = F.relu6(F.conv2d(y, w["wide"], None, 2, 1, 1, y.shape[1]))
    return F.conv2d(y, w["down"]) + F.avg_pool2d(x, 3, 2, 1)


def next_block(x, w):
    y = F.conv2d(x, w["deep"], w["bias"], 1, 3, 1, x.shape[1]).permute(0, 2, 3, 1)
    y = F.gelu(F.layer_norm(y, (x.shape[1],), w["scale"], w["bias"]) * w["scale"])
    return F.conv2d((x + y.permute(0, 3, 1, 2)), w["patch"], None, 2)


def dense_block(x, w):
    y = F.conv2d(x, w["dense"], None, 1, 1)
    z = F.max_pool2d(torch.cat([x, torch.relu(y), F.conv2d(y, w["groups"], None, 1, 1, 1, 4)], 1), 2)
    return y, z, F.adaptive_avg_pool2d(z, 1).flatten(1)


def returned_and_viewed(x, w):
    y = F.conv2d(x, w["depth"], None, 1, 1, 1, x.shape[1])
    z = F.max_pool2d(torch.relu(y), 3, 2)
    return y, y[:, ::2], z.permute(0, 2, 3, 1), z.reshape(z.shape[0], -1).sum(1), torch.as_strided(y, (2, 3), (5, 1),
        1), F.max_pool2d(y, 3, return_indices=True)


def pads_and_scales(x, w):
    y = F.interpolate(F.pad(F.conv2d(x, w["depth"], None, 1, 1, 1, x.shape[1]), (1, 2, 3, 0)), scale_factor=2)
    return F.max_pool2d(torch.where(y > 0, y, x.mean()), 2).mean((2, 3))


def written(x, w):
    y = F.max_pool2d(x, 3, 1, 1)
    x.mul_(2).add_(F.conv2d(y, w["depth"], None, 1, 1, 1, x.shape[1]))
    return x + 1


PROGRAMS = (residual, mobile, next_block, dense_block, returned_and_viewed, pads_and_scales, written)


def image(*sizes, dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(*sizes).to(dtype)


@pytest.mark.parametrize("sizes", [(1, 24, 56, 56), (2, 24, 29, 31)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_contiguous(program, sizes):
    check(program, image(*sizes), weights(), breaks=0, calls=2)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_channels_last(program):
    last = torch.channels_last
    w = {name: t.to(memory_format=last) if t.ndim == 4 else t for name, t in weights().items()}
    check(program, image(2, 24, 30, 31).to(memory_format=last), w, breaks=0, calls=2)
    check(program, image(2, 24, 30, 31).to(memory_format=last), weights(), breaks=0, calls=2)
    check(program, image(2, 24, 30, 31), w, breaks=0, calls=2)


@pytest.mark.parametrize("program", [residual, dense_block, returned_and_viewed], ids=lambda f: f.__name__)
def test_bfloat16(program):
    check(program, image(1, 24, 29, 31, dtype=torch.bfloat16), weights(torch.bfloat16), breaks=0, calls=2)


@pytest.mark.parametrize("program", [residual, dense_block], ids=lambda f: f.__name__)
def test_autocast(program):
    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return program(x, w)
    check(f, image(1, 24, 29, 31), weights(), breaks=0, calls=2)


@pytest.mark.parametrize("sizes", [(1, 4, 40, 40), (1, 4, 40, 9), (5, 4, 9, 40)], ids=str)
def test_few_channels(sizes):
    for program in (residual, dense_block):
        check(program, image(*sizes), weights(channels=4), breaks=0, calls=2)


@pytest.mark.parametrize("sizes", [(1, 1, 64, 64), (3, 1, 64, 64), (1, 48, 1, 400), (48, 1, 1, 90), (1, 1, 1, 400)],
                         ids=str)
def test_strides_that_mean_both_formats(sizes):
    def f(x, w):
        y = F.max_pool2d(torch.relu(F.conv2d(x, w, None, 1, 1, 1, x.shape[1])), 3, 2, 1)
        return y, y + 1
    for x in (image(*sizes), image(*sizes).to(memory_format=torch.channels_last)):
        check(f, x, torch.randn(sizes[1], 1, 3, 3), breaks=0, calls=2)


def test_slices_and_expanded_images():
    w = weights()
    f = lambda x, w: F.max_pool2d(F.conv2d(x, w["depth"], None, 1, 1, 1, 24), 2)
    for x in (image(4, 24, 60, 60)[1:3, :, ::2, 3:40], image(1, 24, 40, 40).expand(3, -1, -1, -1),
              image(40, 40, 24).permute(2, 0, 1)[None]):
        check(f, x, w, breaks=0, calls=2)


@pytest.mark.parametrize("program", [residual, mobile, dense_block], ids=lambda f: f.__name__)
def test_sizes_that_change(program):
    compiled = framejit.compile(program, dynamic=True)
    w = weights()
    for sizes in ((2, 24, 40, 40), (3, 24, 33, 41), (1, 24, 28, 28)):
        x = image(*sizes)
        same_as(program, compiled(x, w), x, w)


def test_pooling_of_special_values():
    x = image(1, 24, 40, 40)
    x[0, 3, 5, 7], x[0, 4, 5, :] = float("nan"), float("-inf")
    x[0, 5] = 1
    check(lambda x: F.max_pool2d(x * 1.5, 3, 2, 1, return_indices=True), x, breaks=0, calls=2)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_edges_of_images(mode):
    x = image(2, 3, 6, 5).to(memory_format=torch.channels_last)
    check(lambda x: (F.pad(x, (1, 2, 1, 1), mode=mode), torch.roll(x, (1, 2), (1, 3)), torch.roll(x, 1, 2)), x)


def volume(sizes=(2, 4, 3, 6, 5)):
    return image(*sizes).to(memory_format=torch.channels_last_3d)


VOLUMES = {
    "to": lambda x: x.contiguous().to(torch.float64, memory_format=torch.channels_last_3d),
    "clone": lambda x: x.contiguous().clone(memory_format=torch.channels_last_3d) * 2,
    "contiguous": lambda x: x.contiguous().contiguous(memory_format=torch.channels_last_3d) + 1,
    "ones_like": lambda x: torch.ones_like(x.contiguous(), memory_format=torch.channels_last_3d),
    "empty": lambda x: torch.empty(x.shape, memory_format=torch.channels_last_3d).fill_(2),
    "cat": lambda x: torch.cat([x, x + 1], 1),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"),
    "roll": lambda x: torch.roll(x, 1, 1),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "batch_norm of a part": lambda x: F.batch_norm(x[:, :, 1:], torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "conv3d": lambda x: F.conv3d(x.contiguous(),
                                 torch.ones(2, x.shape[1], 3, 3, 3).to(memory_format=torch.channels_last_3d)),
    "pooling": lambda x: F.max_pool3d(torch.relu(F.avg_pool3d(x, 2, 1)), 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_channels_last_3d(name):
    for x in (volume(), volume()[:1], volume((2, 1, 3, 6, 5)), volume().contiguous()):
        check(VOLUMES[name], x)
