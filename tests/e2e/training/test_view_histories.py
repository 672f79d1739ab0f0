"""Views that compiled code returns: their nodes are those of eager's ops, with their attributes, and writes to one of
several views raise eager's text."""
import pytest
import torch

import framejit
from steps import Program, check_step, leaf

VIEWS = {
    "transposed": lambda y: y.t(), "seen as a row": lambda y: y.view(-1), "flattened": lambda y: y.flatten(),
    "reshaped": lambda y: y.reshape(2, -1, 4), "by the last dimension": lambda y: y.unflatten(1, (2, 2)),
    "part": lambda y: y[1:, ::2], "row": lambda y: y[-1], "columns": lambda y: y[:, None, 1:3],
    "expanded": lambda y: y.expand(3, *y.shape), "diagonal": lambda y: y.diagonal(1), "permuted": lambda y: y.mT,
    "windows": lambda y: y.unfold(1, 2, 1), "squeezed": lambda y: y[:1].squeeze(0), "itself": lambda y: y[:],
    "negated": lambda y: torch._neg_view(y), "negated part": lambda y: torch._neg_view(y.t())[1:],
    "strided": lambda y: y.as_strided((2, 2), (1, 4), 1), "narrowed": lambda y: y.narrow(0, 1, y.shape[0] - 2),
    "view of views": lambda y: y.t()[1:].unsqueeze(1).transpose(0, 2),
    "real": lambda y: torch.view_as_real(torch.complex(y, y)),
    "complex": lambda y: torch.view_as_complex(y.view(-1, 2)), "conjugate": lambda y: torch.complex(y, y).conj(),
    "imaginary": lambda y: VIEWS["imaginary of complex"](torch.complex(y, y)),
    "imaginary of complex": lambda y: y.conj().imag[1:],
}
SEVERAL = {
    "rows": lambda y: y.unbind(0), "halves": lambda y: y.chunk(2, 1), "of these sizes": lambda y: y.split([1, 3], 1),
    "of one size": lambda y: y.split(2), "views of them": lambda y: [part.t() for part in y.chunk(2)],
}


def described(t):
    node = t.grad_fn
    saved = {name: str(getattr(node, name)) for name in dir(node) if name.startswith("_saved")}
    return node.name(), type(node).__name__, t.output_nr, saved, t.is_neg(), t.is_conj()


def histories(run, args, k):
    outputs = run(*args)
    told = [described(t) for t in outputs if t._is_view()]
    outputs[-1].abs().sum().backward()
    return told, [t._base is not None for t in outputs], outputs


@pytest.mark.parametrize("of", ["input", "inside", "output"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", [name for name in VIEWS | SEVERAL if name != "imaginary of complex"])
def test_the_node_of_a_view(name, dynamic, of):
    def fn(x):
        y = x if of == "input" else x * 2
        found = (VIEWS | SEVERAL)[name](y)
        found = list(found) if name in SEVERAL else [found]
        return [y, *found] if of == "output" else found

    x = [leaf(n, 4) for n in (4, 4, 6, 8)]
    stats = check_step(lambda: Program(fn, make_inputs=lambda k: (x[k] * 1,), watch=x, step=histories), steps=4,
                       graphs=None, backward=None, dynamic=dynamic, strides=False)
    fixed = name in ("rows", "of one size", "complex", "real", "imaginary", "conjugate", "negated", "negated part")
    assert stats["graphs"] == (3 if fixed else 1 if dynamic else 2)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ["negated", "negated part", "imaginary"])
def test_a_view_of_negated_numbers_shares_its_memory(name, grad):
    """Kernels make a copy of it."""
    def fn(x):
        y = torch.complex(x, x) if name == "imaginary" else x * 2
        return y, VIEWS["imaginary of complex" if name == "imaginary" else name](y)

    def step(run, args, k):
        with torch.set_grad_enabled(grad):
            y, v = run(*args)
            if k:
                v.mul_(3)
        if grad:
            (v * v).sum().backward()
        return y.detach().clone(), v.detach().clone(), v._base is y, v.is_neg(), y._version
    check_step(lambda: Program(fn, leaf(4, 4), step=step), graphs=None, backward=None)


@pytest.mark.parametrize("of", ["inside", "output"])
@pytest.mark.parametrize("name", SEVERAL)
def test_a_write_to_one_of_several_views_raises_eagers_text(name, of):
    def fn(x):
        y = x.exp()
        return [*([y] if of == "output" else []), *SEVERAL[name](y)]
    texts = []
    for run in (fn, framejit.compile(fn)):
        with pytest.raises(RuntimeError) as caught:
            run(leaf(4, 4))[-1].mul_(2)
        texts.append(str(caught.value))
    assert texts[0] == texts[1] and "inplace" in texts[0]
    assert framejit.stats()["graphs"] == 1


def test_views_of_parts_of_a_size_that_varies_lie_in_the_whole():
    def parts(y, n):
        a, b = y.split([2 * n, n])
        return a.view(n, 2), b.view(n)
    run = framejit.compile(parts)
    for n in (3, 4, 5, 3):
        grads = []
        for fn in (parts, run):
            y = torch.zeros(3 * n, requires_grad=True)
            a, b = fn(y, n)
            assert a._base is y and b._base is y
            (a.sum() + 10 * b.sum()).backward()
            grads.append(y.grad)
        assert torch.equal(*grads)
    with torch.no_grad():
        y = torch.zeros(12)
        run(y, 4)[1].add_(1)
        assert y.sum() == 4
    assert framejit.stats()["graphs"] == 3
