"""Arguments for rows of graph/ops that test_shape_rows.py does not fit by the schema: pools, transforms, gradients,
linear algebra."""
import torch

from test_shape_rules import make

A, B, V = make((3, 4)), make((4, 5)), make((4,))
MASK, NUMBERS = A > 1, torch.tensor([[0, 1, 2], [2, 0, 1]])
LINE, IMAGE, VOLUME = make((2, 4, 6)), make((2, 4, 6, 6)), make((2, 4, 6, 6, 6))
SQUARE = make((2, 4, 4)) + 4 * torch.eye(4)
POSITIVE = SQUARE @ SQUARE.mT
COMPLEX = torch.complex(LINE, LINE + 1)
CLASSES, MARKS = torch.tensor([0, 1, 3]), torch.ones(3, 4, dtype=torch.long)
BAG = [torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2]), torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2])]
WIDE_BYTES, BYTES = torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
LAYER = [make((5, 2, 3)), make((16, 3)), make((16, 4)), make((16,)), make((16,)), make((1, 2, 4)), make((1, 2, 4))]
POOLED, INDICES = torch.ops.aten.max_pool2d_with_indices(IMAGE, [2, 2])
POOLED3, INDICES3 = torch.ops.aten.max_pool3d_with_indices(VOLUME, [2, 2, 2])
SEGMENTS = {"lengths": torch.tensor([1, 2]), "axis": 0}


def workspace():
    return torch.ops.aten.mkldnn_rnn_layer(*LAYER, False, [], 2, 4, 1, True, False, False, True)


OUTPUT = workspace()
MORE_ARGUMENTS = {
    "max_pool3d_with_indices avg_pool3d": [VOLUME, [2, 2, 2]],
    "_adaptive_avg_pool3d adaptive_max_pool3d": [VOLUME, [2, 3, 2]],
    "max_unpool2d": [POOLED, INDICES, [6, 6]], "max_unpool3d": [POOLED3, INDICES3, [6, 6, 6], [2, 2, 2], [0, 0, 0]],
    "max_pool3d_with_indices_backward": [POOLED3, VOLUME, [2] * 3, [2] * 3, [0] * 3, [1] * 3, False, INDICES3],
    "avg_pool2d_backward": [POOLED, IMAGE, [2, 2], [2, 2], [0, 0], False, True, None],
    "avg_pool3d_backward": [POOLED3, VOLUME, [2] * 3, [2] * 3, [0] * 3, False, True, None],
    "_adaptive_avg_pool3d_backward": [POOLED3, VOLUME],
    "fractional_max_pool3d_backward": [POOLED3, VOLUME, [2, 2, 2], [3, 3, 3], INDICES3],
    "adaptive_max_pool2d_backward": [POOLED, IMAGE, INDICES],
    "adaptive_max_pool3d_backward": [POOLED3, VOLUME, INDICES3],
    "reflection_pad1d_backward replication_pad1d_backward": [make((2, 4, 9)), LINE, [1, 2]],
    "reflection_pad2d_backward replication_pad2d_backward": [make((2, 4, 7, 9)), IMAGE, [1, 2, 0, 1]],
    "reflection_pad3d_backward replication_pad3d_backward": [make((2, 4, 7, 7, 9)), VOLUME, [1, 2, 0, 1, 1, 0]],
    "_convolution": [IMAGE, make((6, 4, 3, 3)), make((6,)), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False, False,
        True,
        True],
    "upsample_nearest3d _upsample_nearest_exact3d": [VOLUME, [9, 8, 7]],
    "upsample_trilinear3d": [VOLUME, [9, 8, 7], False], "_upsample_bicubic2d_aa": [IMAGE, [9, 8], False],
    "upsample_nearest1d_backward _upsample_nearest_exact1d_backward": [make((2, 4, 9)), [9], [2, 4, 6]],
    "upsample_linear1d_backward": [make((2, 4, 9)), [9], [2, 4, 6], False],
    "upsample_nearest2d_backward _upsample_nearest_exact2d_backward": [make((2, 4, 9, 8)), [9, 8], [2, 4, 6, 6]],
    "upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward upsample_bicubic2d_backward "
    "_upsample_bicubic2d_aa_backward": [make((2, 4, 9, 8)), [9, 8], [2, 4, 6, 6], False],
    "upsample_nearest3d_backward _upsample_nearest_exact3d_backward": [make((2, 4, 9, 8, 7)), [9, 8, 7],
        [2, 4, 6, 6, 6]],
    "upsample_trilinear3d_backward": [make((2, 4, 9, 8, 7)), [9, 8, 7], [2, 4, 6, 6, 6], False],
    "grid_sampler_2d_backward": [make((2, 4, 5, 3)), IMAGE, make((2, 5, 3, 2)), 0, 0, False, [True, True]],
    "grid_sampler_3d_backward": [make((2, 4, 5, 3, 4)), VOLUME, make((2, 5, 3, 4, 3)), 0, 0, False, [True, True]],
    "_weight_norm_interface": [A, make((3, 1)), 0],
    "_weight_norm_interface_backward": [A, A, make((3, 1)), make((3, 1)), 0],
    "_embedding_bag_backward": [make((2, 3)), *BAG, torch.empty(0, dtype=torch.long), 10, False, 0, False, None],
    "_embedding_bag_dense_backward": [make((2, 3)), BAG[0], BAG[2], BAG[3], torch.empty(0, dtype=torch.long), 10, False,
        0, None],
    "_embedding_bag_per_sample_weights_backward": [make((2, 3)), make((10, 3)), *BAG[:3], 0],
    "masked_scatter_backward": [A, MASK, [3, 4]],
    "mkldnn_rnn_layer_backward": [*LAYER, *OUTPUT[:3], make((5, 2, 4)), *LAYER[5:], False, 2, 4, 1, True, True, False,
        [], False, OUTPUT[3]],
    "soft_margin_loss": [A, A], "soft_margin_loss_backward": [A, A, A, 1],
    "multi_margin_loss": [A, CLASSES], "multi_margin_loss_backward": [make(()), A, CLASSES, 1, 1],
    "multilabel_margin_loss_forward": [A, MARKS, 1], "multilabel_margin_loss_backward": [make(()), A, MARKS, 1, A / 2],
    "_pdist_forward": [A, 2.0], "_pdist_backward": [V[:3], A, 2.0, V[:3]],
    "_cdist_backward": [make((3, 5)), A, make((5, 4)), 2.0, make((3, 5))], "_euclidean_dist": [A, make((5, 4))],
    "hardtanh_backward": [A, A, 0.0, 1.0], "rrelu_with_noise": [A, A + 1, 0.1, 0.3, True],
    "rrelu_with_noise_functional": [A, A + 1, 0.1, 0.3, True],
    "rrelu_with_noise_backward": [A, A, A, 0.1, 0.3, True, False],
    "batch_norm_backward": [IMAGE, IMAGE, V, V, V + 1, V, V, True, 1e-5, [True] * 3,
        torch.empty(0, dtype=torch.uint8)],
    "_batch_norm_with_update_functional": [IMAGE, V, V, V + 0, V + 1, 0.1, 1e-5], "channel_shuffle": [IMAGE, 2],
    "_conj": [COMPLEX],
    "_fft_r2c": [LINE, [1, 2], 0, True], "_fft_c2c": [COMPLEX, [2, 1], 0, True], "_fft_c2r": [COMPLEX, [1, 2], 0, 10],
    "cholesky cholesky_inverse": [POSITIVE], "cholesky_solve _cholesky_solve_helper": [make((2, 4, 3)), POSITIVE,
        False],
    "linalg_householder_product": [make((2, 4, 3)), make((2, 3))], "geqrf linalg_eig _linalg_eigvals": [SQUARE],
    "ormqr": [SQUARE[0], V, make((4, 3))],
    "linalg_solve_triangular": [SQUARE, make((4, 3)), {"upper": True}],
    "linspace logspace": [0, 1, 5], "linspace.Tensor_Tensor logspace.Tensor_Tensor": [make(()), make(()) + 2, 5],
    "linspace.Tensor_Scalar logspace.Tensor_Scalar": [make(()), 3, 5],
    "linspace.Scalar_Tensor logspace.Scalar_Tensor": [0, make(()), 5], "hann_window": [5],
    "hann_window.periodic": [5, False], "tril_indices triu_indices": [3, 4, -1], "normal.float_float": [0.0, 1.0, [2,
        3]],
    "normal.Tensor_float": [A, 1.0], "normal.float_Tensor": [0.0, A], "normal.Tensor_Tensor": [A, V],
    "zeros.out ones.out rand.out": [[3, 4], {"out": A + 0}], "full.out": [[3, 4], 2, {"out": A + 0}],
    "randint.out": [5, [3, 4], {"out": A + 0}], "randint.low_out": [1, 5, [3, 4], {"out": A + 0}],
    "rrelu_with_noise_": [A + 0, A + 1, 0.1, 0.3, True], "randint_like.low_dtype": [A, 1, 5],
    "randint_like.Tensor": [A, torch.tensor(5)], "poisson _standard_gamma _sample_dirichlet": [A],
    "binomial": [A.round(), A / 2], "cauchy": [A], "exponential": [A], "geometric": [A, 0.5], "log_normal": [A],
    "complex polar ldexp.Tensor": [A, A + 1], "frexp.Tensor": [A], "mvlgamma": [A + 2, 2],
    "native_dropout_backward": [A, MASK, 2.0], "logit logit_": [A / 2],
    "_fused_adam_ _fused_adamw_": [[A + 0], [A + 1], [A + 0], [A + 0], [], [make(())], {"lr": 0.1, "beta1": 0.9,
        "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False}],
    "_amp_foreach_non_finite_check_and_unscale_": [[A + 0], torch.zeros(1), torch.ones(1)],
    "_assert_async": [make(())], "_assert_async.msg": [make(()), "text"],
    "addr": [A, V[:3], V], "addbmm": [make((5,)), make((2, 3, 4)), make((2, 4, 5))], "_int_mm": [WIDE_BYTES, BYTES],
    "_weight_int8pack_mm": [make((3, 16), torch.bfloat16), torch.ones(8, 16, dtype=torch.int8),
        make((8,), torch.bfloat16)],
    "_convert_weight_to_int4pack_for_cpu": [torch.ones(16, 64, dtype=torch.int32), 2],
    "_weight_int4pack_mm_for_cpu": [make((3, 64), torch.bfloat16), torch.ones(16, 32, dtype=torch.uint8), 32,
        make((2, 16, 2), torch.bfloat16)],
    "histogram.bin_ct": [A, 3], "histogram.bins_tensor": [A, torch.tensor([0.0, 0.5, 1.0])],
    "_histogramdd_bin_edges _histogramdd_from_bin_cts": [A, [3, 2, 1, 2]],
    "_histogramdd_from_bin_tensors": [A, [torch.tensor([0.0, 0.5, 1.0])] * 4],
    "norm.Scalar": [A, 2], "norm.ScalarOpt_dtype": [A, 2, {"dtype": torch.float64}], "dist": [A, A + 1], "trace": [A],
    "_foreach_norm.Scalar": [[A, V]], "_unsafe_index_put": [A, [NUMBERS[0]], V],
    "_unsafe_masked_index": [A, MASK[:, 0], [NUMBERS[0], NUMBERS[1]], 0],
    "_unsafe_masked_index_put_accumulate": [A, MASK[:, 0], [NUMBERS[0], NUMBERS[1]], V[:3]],
    "segment_reduce": [A, "sum", SEGMENTS], "_segment_reduce_backward": [make((2, 4)), make((2, 4)), A, "sum",
        SEGMENTS],
    "nonzero_static": [A, {"size": 5}], "repeat_interleave.Tensor": [torch.tensor([1, 2]), {"output_size": 3}],
    "_chunk_cat": [[A, make((5, 2))], 0, 2], "view_copy.dtype": [A, torch.int32], "narrow_copy": [A, 1, 1, 2],
    "as_strided_copy": [A, [2, 2], [1, 2]], "expand_copy": [V, [3, 4]], "permute_copy": [A, [1, 0]],
    "split_with_sizes_copy": [A, [1, 2]], "transpose_copy.int": [A, 0, 1], "unfold_copy": [A, 1, 3, 1],
}
