"""First programs: one graph, values, containers, control flow on constants."""
import pytest
import torch
import torch.nn.functional as F

from check import check


def test_one_op():
    check(lambda x: x + 1, torch.randn(4), breaks=0, compiles=1)


def test_two_inputs_and_keyword():
    def f(x, *, y):
        return x * y - y
    check(f, torch.randn(3, 4), kwargs={"y": torch.randn(4)}, breaks=0, compiles=1)


def test_containers_out():
    def f(x):
        a = x.relu()
        return {"a": a, "pair": (a, [x, a.sum(0)])}
    check(f, torch.randn(3, 4), breaks=0, compiles=1)


def test_python_arithmetic_is_folded():
    def f(x, n):
        total = 0
        for i in range(n):
            total += i * 2
        return x * total
    check(f, torch.randn(3), 5, breaks=0, compiles=1)


def test_branch_on_a_constant():
    def f(x, flag):
        if flag:
            return x.sin()
        return x.cos()
    check(f, torch.randn(3), True, breaks=0, compiles=1)
    check(f, torch.randn(3), False, breaks=0, compiles=1)


def test_returned_input_is_the_same_object():
    check(lambda x, y: (x, y + 1), torch.randn(3), torch.randn(3), breaks=0)


def test_closure_and_inner_function():
    def f(x):
        k = 3
        def g(y):
            return y * k
        return g(x) + g(x + 1)
    check(f, torch.randn(3), breaks=0, compiles=1)


def test_in_place_write_reaches_the_argument():
    def f(x, y):
        x.add_(y)
        return x * 2
    check(f, torch.randn(3), torch.randn(3), breaks=0, compiles=1)


def test_view_of_input_shares_storage():
    def f(x):
        return x.view(2, 6), x.t()
    check(f, torch.randn(3, 4), breaks=0)


def test_list_argument_is_extended():
    def f(x, out):
        out.append(x + 1)
        out[0] = 7
        return len(out)
    check(f, torch.randn(3), [1, 2], breaks=0)


def test_dict_argument_is_written():
    def f(x, d):
        d["y"] = x * 2
        del d["gone"]
        return sorted(d)
    check(f, torch.randn(3), {"gone": 1, "kept": 2}, breaks=0)


class Counter:
    def __init__(self):
        self.n = 0

    def step(self, x):
        self.n += 1
        return x + self.n


def test_attribute_write():
    def f(c, x):
        c.step(x)
        return c.step(x)
    check(f, Counter(), torch.randn(2))


def test_try_except():
    def f(x, d):
        try:
            return x + d["missing"]
        except KeyError as e:
            return x * len(e.args)
    check(f, torch.randn(3), {}, breaks=0, compiles=1)


def test_exception_passes_through():
    def f(x):
        y = x + 1
        raise ValueError("no")
    check(f, torch.randn(3))


@pytest.mark.nothing_captured
def test_shape_error_is_eagers():
    check(lambda x, y: x @ y, torch.randn(3, 4), torch.randn(3, 4))


@pytest.mark.nothing_captured
def test_an_op_that_torch_refuses_is_refused():
    check(lambda x: x.argmax(), torch.tensor([True, False, True]))


def test_print_breaks_and_resumes(capsys):
    def f(x):
        a = x + 1
        print("between")
        return a * 2
    check(f, torch.randn(3), breaks=1, compiles=2)


def test_break_inside_a_loop():
    def f(x):
        for i in range(3):
            x = x + i
            print("step", i)
            x = x * 2
        return x
    check(f, torch.randn(3), compiles=3, breaks=2)


def test_break_inside_an_inlined_callee():
    def inner(x):
        y = x + 1
        print("inner")
        return y * 3

    def f(x):
        return inner(x) - inner(x * 2)
    check(f, torch.randn(3), compiles=4, breaks=2)


def test_break_inside_with_and_try():
    def f(x):
        with torch.no_grad():
            try:
                x = x + 1
                print("in")
                x = x * 2
            finally:
                x = x - 1
        return x
    check(f, torch.randn(3), compiles=2, breaks=1)


def test_data_dependent_branch():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1
    check(f, torch.ones(3), compiles=2, breaks=1)
    check(f, -torch.ones(3), compiles=2, breaks=1)


def test_item():
    def f(x):
        n = int(x.sum().item())
        return x * n
    check(f, torch.ones(3), compiles=2, breaks=1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)])

    def forward(self, x):
        x = self.norm(F.gelu(self.lin(x)))
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return x


def test_module():
    torch.manual_seed(0)
    net = Net().eval()
    check(lambda m, x: m(x), net, torch.randn(4, 8), breaks=0, compiles=1)


def test_generator_expression():
    def f(xs):
        return sum(x * 2 for x in xs if x.dim() == 1)
    check(f, [torch.randn(3), torch.randn(3), torch.randn(1, 3)], breaks=0, compiles=1)


def test_comprehensions_and_unpacking():
    def f(xs):
        first, *rest = [x + 1 for x in xs]
        table = {i: r for i, r in enumerate(rest)}
        return first, table, torch.cat(rest)
    check(f, [torch.randn(3) for _ in range(4)], breaks=0, compiles=1)


def test_random_numbers_are_eagers():
    def f(x):
        return torch.rand(3) + F.dropout(x, 0.5, True) + torch.randn_like(x)
    check(f, torch.randn(3), breaks=0, compiles=1)
