"""NumPy arrays that a trace makes from constants: computed while tracing, copied for each call."""

import warnings

import numpy as np
import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

X = torch.ones(4)


def timesteps(x):
    steps = (np.arange(0, 5) * 200).round()[::-1].copy().astype(np.int64)
    steps += 1
    return torch.from_numpy(steps).to("cpu"), x + 1


def sigmas(x):
    steps = np.linspace(0, 999, 10, dtype=np.float32)[::-1].copy()
    levels = (((1 - torch.linspace(0.1, 0.9, 1000)) / 3) ** 0.5).numpy().copy()
    found = np.interp(steps, np.arange(0, len(levels)), levels)
    found = np.concatenate([found, [0.0]]).astype(np.float32)
    return (
        torch.from_numpy(found).to(torch.float32),
        torch.from_numpy(steps.astype(np.float32)),
        x * float(np.log(levels)[3]),
    )


def views_keep_their_memory(x):
    a = np.arange(6.0)
    b = a[::-1]
    a[1], b[0] = 7, 3
    return a, b, np.arange(12).reshape(3, 4)[1:, ::2], x + 1


def written_while_iterated(x):
    a = np.arange(4)
    for v in a:
        x = x + v
        if v == 1:
            a[2] = 10
    return x, [v for v in a], list(a), a.tolist()


def numbers(x):
    a = np.arange(1, 4)
    b = np.array(2)
    made = [
        float(a[1]),
        int(a.sum()),
        len(a),
        bool(a[:1]),
        a.shape,
        a.size,
        a.ndim,
        (a > 1).any(),
        max(a),
        min(a),
        sum(a),
        1 in a,
    ]
    return made, x[a[0]], [1, 2, 3][b], range(b), float(b), isinstance(a, np.ndarray), -a, ~a, 2**a, a @ a


def out_of_range(x):
    try:
        np.arange(3)[5]
    except IndexError as e:
        return x + len(str(e))
    return x


def tensors(x):
    return (
        torch.tensor(np.arange(3)),
        torch.tensor(np.arange(3), dtype=torch.float32),
        torch.as_tensor(np.ones(2, dtype=np.float32)),
        x + 1,
    )


def same_objects(x):
    a = np.arange(3)
    b = np.asarray(a)
    box = [a, b]
    return a is b, box[0] is box[1], box, x + 1


@pytest.mark.parametrize(
    "f",
    [
        timesteps,
        sigmas,
        views_keep_their_memory,
        written_while_iterated,
        numbers,
        out_of_range,
        tensors,
        same_objects,
    ],
)
def test_whole(f):
    check(f, X, breaks=0)


def test_each_call_gets_arrays_of_its_own():
    def f(x):
        a = np.arange(4.0)
        return a, a[1:], torch.from_numpy(np.ones(2)), x + 1

    compiled = framejit.compile(f)
    for _ in range(3):
        a, view, tensor, _ = compiled(X)
        assert a.tolist() == [0, 1, 2, 3] and tensor.tolist() == [1, 1]
        assert view.base is a
        view[0], tensor[0] = 9, 9
        assert a[1] == 9
    assert framejit.stats()["graph_breaks"] == 0


@pytest.mark.breaks(escaped_traced=1)
def test_memory_that_a_tensor_has_too():
    def array_is_written(x):
        a = np.arange(3.0)
        t = torch.from_numpy(a)
        a[0] = 5
        return t + x.sum(), a

    def tensor_is_written(x):
        a = np.arange(3.0)
        t = torch.from_numpy(a)
        t.add_(1)
        return t + x.sum(), a.sum()

    def both_leave(x):
        t = torch.arange(3.0)
        return t, t.numpy(), x + 1

    def view_of_tensor_is_written(x):
        t = torch.arange(3.0)
        a = t.numpy()[1:]
        t[1:] += 1
        return t + x.sum(), float(a[0])

    check(array_is_written, X, breaks=2)
    check(tensor_is_written, X, breaks=2)
    check(view_of_tensor_is_written, X, compiles=2, breaks=3)
    compiled = framejit.compile(both_leave)
    for _ in range(3):
        t, a, _ = compiled(X)
        t[0] = 7
        assert a[0] == 7


def test_an_array_goes_on_after_a_break():
    class Holder:
        pass

    def f(x):
        holder = Holder()
        holder.a = np.arange(6.0)
        view = holder.a[2:]
        x = x + 1
        print(end="")
        view[0] = 9
        return holder.a, view, x * 2

    check(f, X, compiles=2, breaks=2)


def test_what_cannot_be_known_while_tracing():
    def out_argument(x):
        a = np.zeros(3)
        np.add(a, 1, out=a)
        np.exp(a, a)
        a.clip(0, 2, a)
        return a, x + 1

    def error(x):
        try:
            np.arange(3) @ np.arange(4)
        except ValueError:
            return x + 2
        return x

    def negative_strides(x):
        try:
            return torch.from_numpy(np.arange(3)[::-1])
        except ValueError:
            return x + 1

    def text(x):
        a = np.arange(3.0)
        return str(a), repr(a), f"{a}", x + 1

    def new_shape(x):
        a = np.arange(6)
        a.shape = (2, 3)
        return a, x + 1

    def of_an_input(x):
        return np.array(x).sum(), x + 1

    def in_a_list(x):
        found = [1]
        found += np.arange(2)
        return found, x + 1

    def objects(x):
        return np.array([None, 1]).shape, np.array(["a"]).size, x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of np.array(tensor)
        for f, breaks in ((out_argument, 3), (error, 1), (negative_strides, 1), (text, 3), (new_shape, 1),
                          (of_an_input, 2), (in_a_list, 1), (objects, 4)):
            check(f, X, breaks=breaks)


@pytest.mark.breaks(outside_effect=1)
def test_warnings_of_numpy_are_each_calls():
    def f(x):
        return 1 / np.arange(3.0), x + 1

    compiled = framejit.compile(f)
    for _ in range(3):
        with pytest.warns(RuntimeWarning):
            compiled(X)


def test_arrays_and_tensors_together():
    def known(x):
        levels = torch.linspace(1, 2, 5)
        logs = np.log(np.maximum(levels, 1e-10))
        distances = logs - np.log(np.linspace(1, 2, 5))
        below = np.cumsum((distances >= 0), axis=0)
        return logs, distances, below, np.clip(distances, 0, 1), x + 1

    def view_of_a_tensor(x):
        levels = torch.arange(4.0)
        table = np.reshape(levels, (2, 2))
        levels.add_(1)
        return table, x + 1

    def in_place(x):
        levels = torch.arange(4.0)
        try:
            levels += np.ones(4)
        except TypeError:
            return x
        return levels, x + 1

    def of_an_input(x):
        return np.maximum(x, 0.5), x + np.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(known, X, breaks=0)
        check(view_of_a_tensor, X, compiles=2, breaks=1)
        check(in_place, X, compiles=2, breaks=1)
        check(of_an_input, X, compiles=0, breaks=2)
