"""Each row of graph/ops is exercised: its rule is compared with the executed op, on arguments that its schema or a row
gives."""
import glob
import os
import re

import pytest
import torch
from torch.utils import _pytree as pytree

from recording import Recorder, Recording, clone_like
from row_arguments import MORE_ARGUMENTS
from symbolic_checks import counted  # noqa: F401
from test_shape_rules import check_call, make, no_grad, outcome  # noqa: F401

aten = torch.ops.aten
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def in_place(name):
    base, dot, overload = name.partition(".")
    return base + "_" + dot + overload


def rows_of(path):
    """The ops for which a file of graph/ops has shape rules, as named by its add_rows(), push_back() and lists of
    tuples."""
    with open(path) as f:
        text = f.read()
    text = text[text.find("std::vector<OpRow> "):]
    names = re.findall(r'\{"([\w.:]+)", \w+, ', text)
    for kind, lists in re.findall(r'\badd_rows(\w*)\(\s*rows,\s[^"]*?\{((?:\s*"[\w.:]+",?)+)\}', text):
        found = re.findall(r'"([\w.:]+)"', lists)
        names += found + [in_place(name) for name in found if kind]
    return names


FAMILIES = {os.path.basename(path): rows_of(path)
            for path in sorted(glob.glob(os.path.join(ROOT, "graph", "ops", "*.cpp")))
            if not path.endswith(("rule_kit.cpp", "packed.cpp"))}  # those of packed.cpp have no rules
# The dispatcher splits these before the recorder sees them: shape_rules.txt has a case of each.
COMPOSITE = {"__and__.Tensor", "__and__.Scalar", "__or__.Tensor", "__or__.Scalar", "__xor__.Tensor", "__xor__.Scalar",
             "isfinite", "relu6", "reshape"}
# Only a GPU has kernels for these.
OF_A_GPU = {"cudnn_convolution_relu", "cudnn_convolution_add_relu", "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention"}
# Kernels that read outside of their tensors: if lengths do not add up, as those of other sizes do not; if rows are not
# whole vectors.
UNCHECKED = {"_segment_reduce_backward", "_weight_int8pack_mm", "_weight_int4pack_mm_for_cpu"}
CHANGE_SHAPE = {"t_", "transpose_", "squeeze_", "squeeze_.dim", "unsqueeze_", "as_strided_"}

A, B, V = make((3, 4)), make((4, 5)), make((4,))
MASK, NUMBERS, ROWS = A > 1, torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([0, 2])
LEFT, RIGHT, HEADS = make((2, 3, 4)), make((2, 4, 5)), make((2, 4, 5, 8))
LINE, IMAGE, CHANNEL = make((2, 4, 6)), make((2, 4, 6, 6)), make((4,))
AVERAGES = [CHANNEL, CHANNEL, CHANNEL + 0, CHANNEL + 1]
SQUARE = make((2, 4, 4)) + 4 * torch.eye(4)
SEQUENCE, PROJECTIONS = make((2, 5, 8)), [make((24, 8)), make((24,)), make((8, 8)), make((8,))]
# Arguments for ops that arguments_of does not fit; a dict at the end names some.
ARGUMENTS = {
    "_addmm_activation addmm": [make((5,)), A, B], "baddbmm": [make((2, 3, 5)), LEFT, RIGHT], "mm": [A, B],
    "bmm": [LEFT, RIGHT], "mv": [A, V], "dot vdot": [V, V + 1], "addmm_": [make((3, 5)), A, B],
    "baddbmm_": [make((2, 3, 5)), LEFT, RIGHT], "_scaled_dot_product_flash_attention_for_cpu": [HEADS, HEADS, HEADS],
    "_batch_norm_with_update _batch_norm_no_update _native_batch_norm_legit_no_training": [IMAGE, *AVERAGES, 0.1, 1e-5],
    "_native_batch_norm_legit": [IMAGE, *AVERAGES, False, 0.1, 1e-5],
    "native_batch_norm _native_batch_norm_legit_functional": [IMAGE, *AVERAGES, True, 0.1, 1e-5],
    "_native_batch_norm_legit.no_stats": [IMAGE, CHANNEL, CHANNEL, True, 0.1, 1e-5],
    "native_group_norm": [IMAGE, CHANNEL, CHANNEL, 2, 4, 36, 2, 1e-5], "native_layer_norm": [A, [4], V, V, 1e-5],
    "convolution": [IMAGE, make((6, 4, 3, 3)), make((6,)), [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
    "avg_pool2d max_pool2d_with_indices": [IMAGE, [2, 2]], "_adaptive_avg_pool2d": [IMAGE, [2, 3]],
    "upsample_nearest1d _upsample_nearest_exact1d": [LINE, [9]], "upsample_linear1d": [LINE, [9], False],
    "upsample_nearest2d _upsample_nearest_exact2d": [IMAGE, [9, 8]],
    "upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa": [IMAGE, [9, 8], False],
    "nll_loss_forward": [A, ROWS.new_tensor([0, 1, 3]), None, 1, -100],
    "nll_loss_backward": [make(()), A, ROWS.new_tensor([0, 1, 3]), None, 1, -100, make(()) + 3],
    "reflection_pad1d replication_pad1d constant_pad_nd": [A, [1, 2]],
    "reflection_pad2d replication_pad2d": [IMAGE, [1, 2, 0, 1]],
    "reflection_pad3d replication_pad3d": [IMAGE, [1, 2, 0, 1, 1, 0]],
    "index_reduce index_reduce_": [A, 0, ROWS[:0], A[:0], "mean"], "select_backward": [V, [3, 4], 0, 1],
    "slice_backward": [A, [5, 4], 0, 1, 4, 1], "embedding_dense_backward": [make((2, 3, 4)), NUMBERS, 5, -1, False],
    "max_pool2d_with_indices_backward": [make((2, 4, 3, 3)), IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False,
        torch.zeros(2, 4, 3, 3, dtype=torch.long)],
    "_adaptive_avg_pool2d_backward": [make((2, 4, 2, 3)), IMAGE], "index.Tensor _unsafe_index.Tensor": [A, [ROWS]],
    "index_put index_put_ _index_put_impl_": [A, [ROWS], V], "index_select": [A, 0, ROWS],
    "index_fill.int_Scalar index_fill_.int_Scalar": [A, 0, ROWS, 2],
    "index_fill.int_Tensor index_fill_.int_Tensor": [A, 0, ROWS, make(())],
    "index_add index_add_ index_copy index_copy_": [A, 0, ROWS, A[:2] + 1],
    "masked_scatter masked_scatter_": [A, MASK, A + 1],
    "scatter.reduce scatter_.reduce": [A, 0, NUMBERS, A + 1, {"reduce": "add"}],
    "scatter.value_reduce scatter_.value_reduce": [A, 0, NUMBERS, 2, {"reduce": "multiply"}],
    "scatter_reduce.two scatter_reduce_.two": [A, 0, NUMBERS, A + 1, "sum"],
    "_softmax_backward_data _log_softmax_backward_data": [A, A, 1, torch.float32],
    "masked_fill.Scalar masked_fill_.Scalar": [A, MASK, 2],
    "masked_fill.Tensor masked_fill_.Tensor": [A, MASK, make(())], "fill.Tensor fill_.Tensor": [A, make(())],
    "where.self": [MASK, A, A + 1], "clamp clamp_": [A, 0, 1], "clamp.Tensor clamp_.Tensor": [A, V, V],
    "bernoulli": [A / 2], "randint.low": [1, 5, [3]],
    "norm.ScalarOpt_dim_dtype": [A, 2, [1], True, {"dtype": torch.float64}], "view view_copy _unsafe_view": [A, [2, 6]],
    "expand": [V, [3, 4]], "permute": [A, [1, 0]], "repeat": [A, [2, 1, 3]],
    "split_with_sizes unsafe_split_with_sizes": [A, [1, 2], 0], "mse_loss smooth_l1_loss huber_loss": [A, A + 1],
    "binary_cross_entropy": [A / 2, A / 2], "binary_cross_entropy_with_logits": [A, A / 2],
    "nll_loss2d_forward": [IMAGE, torch.ones(2, 6, 6, dtype=torch.long), CHANNEL, 1, -100], "glu": [A],
    "_embedding_bag _embedding_bag_forward_only": [B, NUMBERS[0], ROWS], "_safe_softmax": [A, 1],
    "adaptive_max_pool2d": [IMAGE, [2, 3]], "im2col": [IMAGE, [2, 3], [1, 1], [0, 1], [2, 1]],
    "col2im": [make((2, 12, 20)), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1]],
    "lstm.input": [make((5, 2, 3)), [make((1, 5, 4))] * 2, [make((16, 3)), make((16, 4)), make((16,)), make((16,))],
        True, 1, 0.0, False, False, True],
    "gru.input": [make((5, 2, 3)), make((2, 2, 4)), [make((12, 3)), make((12, 4))] * 2, False, 1, 0.0, False, True,
        False],
    "rnn_tanh.input rnn_relu.input": [make((5, 2, 3)), make((1, 5, 4)), [make((4, 3)), make((4, 4)), make((4,)),
        make((4,))], True, 1, 0.0, False, False, True],
    "grid_sampler_2d": [IMAGE, make((2, 5, 3, 2)), 0, 0, False],
    "grid_sampler_3d": [make((2, 4, 3, 3, 3)), make((2, 5, 3, 4, 3)), 0, 0, False],
    "affine_grid_generator": [make((2, 2, 3)), [2, 4, 6, 5], False], "pixel_shuffle pixel_unshuffle": [IMAGE, 2],
    "searchsorted.Tensor": [A.sort()[0], A], "searchsorted.Scalar": [V.sort()[0], 1],
    "bucketize.Tensor": [A, V.sort()[0]], "bucketize.Scalar": [1, V.sort()[0]], "take": [A, NUMBERS],
    "multinomial": [A, 2], "linalg_cross": [LINE[0, :, :3], LINE[0, :, 3:]],
    "_linalg_solve_ex": [SQUARE, make((2, 4, 3))],
    "_linalg_check_errors": [torch.zeros(2, dtype=torch.int32), "linalg.inv", {"is_matrix": False}],
    "framejit::attention": [HEADS, HEADS, HEADS, make((5, 5)), False, 0.5],
    "_trilinear": [make((3, 4)), make((5, 4, 6)), make((3, 6)), [1, 3], [0], [1, 2], [2, 3]],
    "linalg_inv_ex linalg_cholesky_ex _linalg_det _linalg_slogdet _linalg_eigh linalg_matrix_exp": [SQUARE],
    "_native_multi_head_attention": [SEQUENCE, SEQUENCE, SEQUENCE, 8, 2, *PROJECTIONS],
    "_transformer_encoder_layer_fwd": [SEQUENCE, 8, 2, *PROJECTIONS, False, False, 1e-5, *[make((8,))] * 4,
        make((16, 8)), make((16,)), make((8, 16)), make((8,))],
    "unfold_backward": [make((3, 2, 3)), [3, 4], 1, 3, 1], "diagonal_backward": [make((3,)), [3, 4], 0, 0, 1],
    "nll_loss2d_backward": [make(()), IMAGE, torch.ones(2, 6, 6, dtype=torch.long), CHANNEL, 1, -100, make(()) + 3],
    "mse_loss_backward": [A / 2, A / 2, A / 3, 1], "binary_cross_entropy_backward": [A / 2, A / 2, A / 3, None, 1],
    "smooth_l1_loss_backward huber_loss_backward": [A, A, A + 1, 1, 0.5], "glu_backward": [make((3, 2)), A, 1],
    "log_sigmoid_backward _prelu_kernel_backward": [A, A, A],
    "native_layer_norm_backward": [A, A, [4], make((3, 1)), make((3, 1)), V, V, [True, True, True]],
    "native_group_norm_backward": [IMAGE, IMAGE, make((2, 2)), make((2, 2)), CHANNEL, 2, 4, 36, 2, [True, True, True]],
    "native_batch_norm_backward": [IMAGE, IMAGE, *AVERAGES[:2], CHANNEL + 1, CHANNEL, CHANNEL, True, 1e-5,
        [True, True, True]],
    "convolution_backward": [make((2, 6, 4, 4)), IMAGE, make((6, 4, 3, 3)), [6], [1, 1], [0, 0], [1, 1], False, [0, 0],
        1, [True, True, True]],
    "_scaled_dot_product_flash_attention_for_cpu_backward": [HEADS, HEADS, HEADS, HEADS, HEADS, make((2, 4, 5)), 0.0,
        False],
    **MORE_ARGUMENTS, "as_strided_scatter": [A, make((2, 2)), [2, 2], [1, 2]], "select_scatter": [A, V, 0, 1],
    "diagonal_scatter": [A, make((3,))],
}
ARGUMENTS = {name: values for names, values in ARGUMENTS.items() for name in names.split()}


def arguments_of(op, dtype):
    """Arguments by the schema: matrices that fit each other elementwise, 2 for a number, 1 for a dimension,
    defaults."""
    def value(argument):
        by_type = {"Tensor": A.to(dtype), "number": 2, "int": 1, "bool": False, "float": 0.5, "List[int]": [1],
                   "List[Tensor]": [A.to(dtype), A.to(dtype)]}
        return argument.default_value if argument.has_default_value() else by_type.get(str(argument.type))
    return [value(a) for a in op._schema.arguments if not a.kwarg_only], {a.name: value(a) for a in op._schema.arguments
        if a.kwarg_only and not a.has_default_value()}


def op_of(name):
    namespace, _, own = name.rpartition("::")
    base, _, overload = own.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), base), overload or "default")


def uses_the_row(name, args, kwargs):
    """Checks the call of one op, with symbols too. True if its rule gave the shape, or for an in-place op the rule of
    its functional form."""
    op = op_of(name)
    leaves, shape = pytree.tree_flatten([args, kwargs])

    def call(*tensors):
        given = iter(tensors)
        a, k = pytree.tree_unflatten([next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves],
                                     shape)
        if name in CHANGE_SHAPE:
            a[0] = aten.alias(a[0])  # an input keeps its own shape
        return op(*a, **k)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if outcome(call, [clone_like(t) for t in tensors])[1] is not None:
        return False
    check_call(call, tensors, name, symbolic=name not in UNCHECKED)
    recorder = Recording(call, [clone_like(t) for t in tensors]).recorder
    counts, ops = recorder.counts(), [op for op in recorder.ops() if op != "alias" or name == "alias"]
    return ops == [name] and counts["rule"] + counts["in_place"] == sum(counts.values())


def cases_of(name):
    if name in ARGUMENTS:
        *args, last = ARGUMENTS[name]
        return [(args, last) if isinstance(last, dict) else ([*args, last], {})]
    return [arguments_of(op_of(name), dtype) for dtype in (torch.float32, torch.int64)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_has_a_case(family):
    unused = [name for name in FAMILIES[family] if name not in COMPOSITE | OF_A_GPU
              and not any([uses_the_row(name, *case) for case in cases_of(name)])]
    assert FAMILIES[family] and not unused, (f"{family}: no case exercises the rules of {unused}: add arguments to "
                                             "ARGUMENTS")


def test_the_rows_are_those_of_the_table():
    """The ops read from the source are those of the table of torch's ops, and every exception above is needed."""
    rows = {name for names in FAMILIES.values() for name in names}
    ops = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert {name for name in ops if Recorder.op(name).endswith(" rule")} == rows & ops
    assert all(name in ops or (name.startswith("framejit::") and op_of(name)) for name in rows)
    with open(os.path.join(ROOT, "tests", "golden", "graph", "shape_rules.txt")) as f:
        executed = set(re.findall(r"^  .* = ([\w.]+) ", f.read(), re.MULTILINE))
    assert COMPOSITE <= executed
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert not any(has_kernel("aten::" + name, "CPU") for name in OF_A_GPU)
    for name in COMPOSITE:
        assert has_kernel("aten::" + name, "CompositeImplicitAutograd") and not has_kernel("aten::" + name, "CPU")
