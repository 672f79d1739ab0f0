"""Attention in float64, for the reference of wide.py. The GPU's kernels have no such form: some refuse float64, and
cuDNN's reads its memory as another dtype."""
import math

import torch

aten = torch.ops.aten


def without_dropout(dropout):
    """The mask of a dropout inside is not known here."""
    if dropout:
        raise NotImplementedError("attention with dropout in float64")


def scale_of(q, scale):
    return q.shape[-1] ** -0.5 if scale is None else scale


def scores(q, k, bias, causal, scale):
    found = q @ k.transpose(-2, -1) * scale_of(q, scale)
    if bias is not None:
        found = found + bias
    if causal:
        found = found.masked_fill(torch.ones_like(found, dtype=torch.bool).triu(1), -math.inf)
    return found


def attention(q, k, v, bias, dropout, causal, scale):
    """The result, and the logarithm of each row's sum."""
    without_dropout(dropout)
    found = scores(q, k, bias, causal, scale)
    return found.softmax(-1) @ v, found.logsumexp(-1)


def attention_backward(grad, q, k, v, bias, dropout, causal, scale):
    """The gradients of query, key, value and bias."""
    without_dropout(dropout)
    chances = scores(q, k, bias, causal, scale).softmax(-1)
    of_chances = grad @ v.transpose(-2, -1)
    of_scores = chances * (of_chances - (of_chances * chances).sum(-1, keepdim=True))
    return (of_scores @ k * scale_of(q, scale), of_scores.transpose(-2, -1) @ q * scale_of(q, scale),
            chances.transpose(-2, -1) @ grad, None if bias is None else of_scores.sum_to_size(bias.shape))


def flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    return (*attention(q, k, v, None, dropout_p, is_causal, scale), *[None] * 7)


def cudnn(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, return_debug_mask=False, *,
          scale=None):
    result, sums = attention(q, k, v, attn_bias, dropout_p, is_causal, scale)
    return (result, sums.unsqueeze(-1), *[None] * 7)


def efficient(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    return (*attention(q, k, v, attn_bias, dropout_p, is_causal, scale), None, None)


def flash_backward(grad, q, k, v, out, sums, rows_q, rows_k, most_q, most_k, dropout_p, is_causal, seed, offset, *,
                   scale=None):
    return attention_backward(grad, q, k, v, None, dropout_p, is_causal, scale)[:3]


def cudnn_backward(grad, q, k, v, out, sums, seed, offset, attn_bias, rows_q, rows_k, most_q, most_k, dropout_p,
                   is_causal, *, scale=None):
    return attention_backward(grad, q, k, v, attn_bias, dropout_p, is_causal, scale)[:3]


def efficient_backward(grad, q, k, v, attn_bias, out, sums, seed, offset, dropout_p, grad_input_mask, is_causal=False,
                       *, scale=None):
    return attention_backward(grad, q, k, v, attn_bias, dropout_p, is_causal, scale)


FORMS = {
    aten._scaled_dot_product_flash_attention.default: flash,
    aten._scaled_dot_product_cudnn_attention.default: cudnn,
    aten._scaled_dot_product_efficient_attention.default: efficient,
    aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
}
