"""Small tensor programs that the graph fuzzer found: layouts after views, shared memory of outputs, shapes of inputs,
late errors."""
import pytest
import torch

import framejit
from check import BACKENDS, check, fresh, same  # noqa: F401


def sharing(tensors):
    where = [t.untyped_storage().data_ptr() for t in tensors]
    return [where.index(w) for w in where]


def check_sharing(fn, *args):
    """Asserts that results and arguments share memory as in eager; their values and strides are eager's."""
    check(fn, *args, breaks=0)
    for backend in BACKENDS:
        ours = [a.clone() for a in args]
        plain = [a.clone() for a in args]
        got, want = framejit.compile(fn, backend=backend)(*ours), fn(*plain)
        assert sharing([*got, *ours]) == sharing([*want, *plain]), backend


class TestLayouts:
    def test_a_view_of_a_decomposed_result(self):
        def f(x):
            y = torch.log_softmax(x, 0)
            return y.select(1, 0), torch.nn.functional.layer_norm(x, x.shape[-1:]).select(1, 0)
        check(f, torch.randn(6, 4).T, breaks=0)

    def test_behind_an_op_whose_operand_was_decomposed(self):
        def f(x, y):
            z = torch.softmax(x, 0) + y
            return z.select(1, 0), z.view(-1)
        check(f, torch.randn(6, 4).T, torch.randn(4, 6), breaks=0)

    @pytest.mark.parametrize("op",
                             [lambda x, i: x.index_add(0, i, x[i]), lambda x, i: x.index_copy(0, i,
                                 x[i]), lambda x, i: x.masked_scatter(x > 0, x), lambda x, i: x.index_fill(0, i, 1.0)],
                             ids=["index_add", "index_copy", "masked_scatter", "index_fill"])
    def test_indexed_writes_of_a_transposed_tensor(self, op):
        def f(x, i):
            y = op(x, i)
            return y, y.mT * 2, torch.softmax(y, 0)
        check(f, torch.randn(4, 3).T, torch.tensor([0, 2]), breaks=0)
        check(f, torch.randn(3, 8)[:, ::2], torch.tensor([0, 2]), breaks=0)

    def test_a_view_and_its_decomposed_base_share_memory(self):
        def f(x):
            y = torch.softmax(x, 0)
            return y.select(1, 0), y
        check_sharing(f, torch.randn(6, 4).T)

    @pytest.mark.parametrize("view",
                             [lambda x: x[:, ::2].T, lambda x: x[:1].expand(3, 8).T, lambda x: x.view(2, 6, 2,
                                 2).contiguous(memory_format=torch.channels_last)[:, 1:]],
                             ids=["stepped", "expanded", "channels_last"])
    def test_a_cast_of_a_tensor_with_gaps(self, view):
        def f(x):
            y = view(x)
            return y.double(), y.to(torch.bfloat16).relu()
        check(f, torch.randn(6, 8), breaks=0)


class TestSharing:
    def test_views_of_one_removed_copy(self):
        check_sharing(lambda x: (x.clone().mT, x.clone()), torch.randn(3, 4))

        def f(x):
            y = x.clone()
            return y.mT, y.detach(), y[1:]
        check_sharing(f, torch.randn(3, 4))

    def test_two_copies_with_views(self):
        def f(x):
            a, b = x.clone(), x.clone()
            return a.mT, b.mT, a.view(-1), b.split(1)[1]
        check_sharing(f, torch.randn(3, 4))

    def test_a_written_view_of_a_copy(self):
        def f(x):
            y = x.clone()
            z = y.unbind(0)
            z[1].mul_(2)
            return z[0], y, z[1]
        check_sharing(f, torch.randn(3, 4))


class TestInputs:
    @pytest.mark.parametrize("change",
                             [lambda x: x.unsqueeze_(0), lambda x: x.t_(), lambda x: x.transpose_(0,
                                 1), lambda x: x.resize_(2, 2), lambda x: x.squeeze_()],
                             ids=["unsqueeze_", "t_", "transpose_", "resize_", "squeeze_"])
    def test_a_change_of_an_inputs_own_shape(self, change, request):
        def f(x):
            y = x + 1
            change(x)
            return y, x * 2
        breaks = int("[squeeze_]" not in request.node.name)  # which has nothing to change here
        check(f, torch.randn(2, 1, 4)[:, 0], compiles=breaks + 1, breaks=breaks)
        check(f, torch.randn(3, 4), compiles=breaks + 1, breaks=breaks)

    def test_a_resize_of_a_fresh_tensor(self):
        check(lambda x: x.clone().resize_(2, 3), torch.randn(4, 3).T, breaks=1)

    def test_a_change_of_a_fresh_tensors_shape(self):
        def f(x):
            y = x + 1
            y.unsqueeze_(0)
            return y.t_() if y.dim() == 2 else y.squeeze_()
        check(f, torch.randn(4), breaks=0)
        check(f, torch.randn(3, 4), breaks=0)


class TestErrors:
    def test_a_copy_that_does_not_fit(self):
        def f(x):
            x.select(-1, 0).copy_(x.select(1, -1))
            return x
        check(f, torch.randn(2, 1, 4), breaks=1)

    @pytest.mark.cpu_only("an index that is out of range ends the process")
    @pytest.mark.parametrize("use",
                             [lambda x, i: x.index_fill_(0, i, 1.0), lambda x, i: x[i], lambda x, i: x.gather(0,
                                 i), lambda x, i: torch.nn.functional.embedding(i, x[:, None])],
                             ids=["index_fill_", "index", "gather", "embedding"])
    def test_an_index_out_of_range_that_nobody_reads(self, use):
        def f(x, i):
            use(x + 1, i)
            return x * 2
        check(f, torch.randn(3), torch.tensor([0, 2]))
        check(f, torch.randn(3), torch.tensor([0, 7]))

    def test_a_singular_matrix(self):
        for solve in (torch.linalg.inv, torch.linalg.cholesky, lambda x: torch.linalg.solve(x, x)):
            check(solve, torch.zeros(3, 3))
            check(solve, torch.eye(3), breaks=0)

    @pytest.mark.parametrize("use",
                             [lambda x: x.max(), lambda x: x.min(0), lambda x: x.mode(
                                 0), lambda x: torch.diagonal_scatter(x, x)],
                             ids=["max", "min_dim", "mode", "diagonal_scatter"])
    def test_a_reduction_of_nothing_that_nobody_reads(self, use):
        def f(x):
            use(x * 2)
            return x + 1
        check(f, torch.randn(0))

    @pytest.mark.nothing_captured
    @pytest.mark.parametrize("args", [(torch.ones(()), torch.ones(()), 0, 0), (torch.ones(3), torch.ones(2), 0, 0),
                                      (torch.ones(3, 3), torch.ones(3), 0, 7), (torch.ones(3, 3), torch.ones(3), 2, 0)])
    def test_a_scatter_that_does_not_fit(self, args):
        check(torch.select_scatter, *args)

    def test_a_group_norm_of_a_transposed_tensor(self):
        check(lambda x: torch.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5), torch.randn(2, 3, 4).mT)
        check(lambda x: torch.native_group_norm(x, torch.ones(3), None, 2, 4, 3, 2, 1e-5), torch.randn(2, 4, 3))

    @pytest.mark.nothing_captured
    def test_an_interpolation_of_two_dtypes(self):
        check(lambda x, y: torch.lerp(x, y, 0.5), torch.randn(3), torch.randn(3).half())

    @pytest.mark.nothing_captured  # the error is found while tracing
    def test_a_product_whose_summand_does_not_expand(self):
        check(torch.addmm, torch.randn(3, 1), torch.randn(2, 4), torch.randn(4, 5))
        check(torch.baddbmm, torch.randn(0, 2, 5), torch.randn(2, 2, 4), torch.randn(2, 4, 5))

    def test_a_choice_by_a_known_mask(self):
        for known in (torch.ones, torch.zeros):
            check(lambda x: (x.masked_fill(known(4, dtype=torch.bool), 0.5),
                             torch.where(known(4, dtype=torch.bool), 1.5, x),
                             torch.where(known(4, dtype=torch.bool), x, 1.5) + x), torch.randn(4))


class TestRandom:
    @pytest.mark.parametrize("fill", ["normal_", "uniform_", "exponential_", "bernoulli_"])
    def test_fills_of_tensors_with_gaps(self, fill):
        def f(x):
            y = x.clone()
            getattr(y[:, ::2], fill)()
            getattr(y.T, fill)()
            return y, getattr(x, fill)()
        one_more = fill == "normal_"  # of a tensor with gaps
        check(f, torch.randn(6, 8), compiles=2 + one_more, breaks=1 + one_more)
        check(f, torch.randn(6, 16)[:, ::2], compiles=2, breaks=2 + one_more)


def test_an_expression_that_is_one_is_broadcast():
    """Its size is not a constant; that it is 1 is a fact of the graph."""
    def f(x):
        halves = x[::2].square()[::2]
        return torch.minimum(halves.sum(-1), halves), torch.where(halves > 0, halves.amax(-1),
                                                                  0.0), halves.amin(-1).expand(3, x.shape[1]) + 1
    compiled = framejit.compile(f)
    with torch.no_grad():
        for size in ((3, 3), (4, 2), (4, 9), (3, 40)):
            x = torch.randn(size)
            same(compiled(x), f(x))
