"""Gradients of torch's modules and losses, compiled, in float32 and under autocast: equal to eager's, one graph."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from steps import Program, check_step, leaf, precision, skip_without_lstm_of_bfloat16  # noqa: F401


# ---- modules: (module, inputs)


def image(channels=3):
    return leaf(2, channels, 8, 8)


class OverIndices(nn.Module):
    def __init__(self, embedding, *more):
        super().__init__()
        self.embedding, self.rest = embedding, nn.Sequential(*more)

    def forward(self, *indices):
        return self.rest(self.embedding(*indices))


class SelfAttention(nn.Module):
    def __init__(self, dropout=0.0, causal=False):
        super().__init__()
        self.qkv, self.out, self.dropout, self.causal = nn.Linear(16, 48), nn.Linear(16, 16), dropout, causal

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class WrittenAttention(nn.Module):
    """Attention as it is written out, with a mask."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8, bias=False)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 8 ** 0.5
        return F.dropout(scores.masked_fill(mask, float("-inf")).softmax(-1), 0.25, self.training) @ self.v(x)


class Steps(nn.Module):
    """A cell over time, as a loop."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state, seen = None, []
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            seen.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(seen, 1)


def tokens(*shape, below=10):
    return torch.randint(0, below, shape)


MODULES = {
    "linear": lambda: (nn.Linear(5, 3), leaf(4, 5)),
    "linear, no bias": lambda: (nn.Linear(5, 3, bias=False), torch.randn(4, 5)),
    "bilinear": lambda: (nn.Bilinear(5, 4, 3), leaf(6, 5), leaf(6, 4)),
    "mlp": lambda: (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 3)),
                    leaf(4, 8)),
    "conv1d": lambda: (nn.Conv1d(3, 4, 3, padding=1), leaf(2, 3, 9)),
    "conv2d": lambda: (nn.Conv2d(3, 4, 3, padding=1, stride=2), image()),
    "conv2d, groups": lambda: (nn.Conv2d(4, 8, 3, groups=4, bias=False), image(4)),
    "conv2d, channels last": lambda: (nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
                                      torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)),
    "transposed conv": lambda: (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), image()),
    "conv, norm, relu": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
                                               nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), image()),
    "batch norm": lambda: (nn.BatchNorm2d(3), image()),
    "batch norm, eval": lambda: (nn.BatchNorm2d(3).eval(), image()),
    "batch norm, no statistics": lambda: (nn.BatchNorm1d(5, track_running_stats=False), leaf(6, 5)),
    "batch norm, cumulative": lambda: (nn.BatchNorm1d(5, momentum=None), leaf(6, 5)),
    "layer norm": lambda: (nn.LayerNorm(12), leaf(4, 12)),
    "layer norm, no bias": lambda: (nn.LayerNorm((3, 4), bias=False), leaf(2, 3, 4)),
    "group norm": lambda: (nn.GroupNorm(2, 4), image(4)),
    "instance norm": lambda: (nn.InstanceNorm2d(3, affine=True), image()),
    "rms norm": lambda: (nn.RMSNorm(12), leaf(4, 12)),
    "embedding": lambda: (OverIndices(nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 2)), tokens(3, 5)),
    "embedding, by frequency": lambda: (OverIndices(nn.Embedding(10, 4, scale_grad_by_freq=True)), tokens(3, 5)),
    "embedding bag": lambda: (OverIndices(nn.EmbeddingBag(10, 4, mode="sum"), nn.Tanh()), tokens(3, 5)),
    "embedding bag, offsets": lambda: (OverIndices(nn.EmbeddingBag(10, 4, mode="mean")), tokens(7),
                                       torch.tensor([0, 2, 2, 5])),
    "attention": lambda: (SelfAttention(), leaf(2, 5, 16)),
    "causal attention, dropout": lambda: (SelfAttention(0.25, causal=True), leaf(2, 5, 16)),
    "written attention": lambda: (WrittenAttention(), leaf(2, 5, 8), torch.ones(5, 5).triu(1).bool()),
    "multihead attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), *[leaf(2, 5, 8)] * 3),
    "transformer layer": lambda: (nn.TransformerEncoderLayer(16, 4, 24, 0.25, batch_first=True), leaf(2, 5, 16)),
    "dropout": lambda: (nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 2)), leaf(4, 5)),
    "dropout2d": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout2d(0.5)), image()),
    "alpha dropout": lambda: (nn.Sequential(nn.Linear(5, 8), nn.SELU(), nn.AlphaDropout(0.3)), leaf(4, 5)),
    "rnn cell": lambda: (Steps(nn.RNNCell(4, 6)), leaf(3, 5, 4)),
    "gru cell": lambda: (Steps(nn.GRUCell(4, 6)), leaf(3, 5, 4)),
    "lstm cell": lambda: (Steps(nn.LSTMCell(4, 6)), leaf(3, 5, 4)),
    "lstm": lambda: (nn.LSTM(4, 6, 2, batch_first=True), leaf(3, 5, 4)),
    "gru, both ways": lambda: (nn.GRU(4, 6, bidirectional=True), leaf(5, 3, 4)),
    "prelu, glu": lambda: (nn.Sequential(nn.Linear(4, 8), nn.PReLU(8), nn.GLU(), nn.Softplus()), leaf(3, 4)),
    "upsampling": lambda: (nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")), image()),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(5, 3)), leaf(4, 5)),
    "spectral norm": lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3)), leaf(4, 5)),
}
BREAKS = {"batch norm, cumulative": 1}  # it asks a tensor for its number
NOT_IN_BF16 = {"embedding bag", "embedding bag, offsets"}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name, precision, request):
    if name == "lstm" and precision == "bf16":
        skip_without_lstm_of_bfloat16()
    bf16 = precision == "bf16" and name not in NOT_IN_BF16
    captured = not (bf16 and name == "bilinear")  # its kernel calls ops that autocast casts: unsupported_op
    if not captured:
        request.node.add_marker(pytest.mark.nothing_captured)
        request.node.add_marker(pytest.mark.breaks(unsupported_op=1))
    check_step(MODULES[name], autocast=bf16, breaks=BREAKS.get(name, 0) if captured else None, captured=captured,
               backward=True if captured else None, graphs=None)


# ---- losses: as the last thing in the compiled function

LOSSES = {
    "cross entropy": lambda y: F.cross_entropy(y, torch.tensor([0, 3, 2, 1])),
    "cross entropy, all": lambda y: F.cross_entropy(y, torch.tensor([0, -100, 2, 1]), label_smoothing=0.1,
                                                    reduction="sum"),
    "cross entropy, weights": lambda y: F.cross_entropy(y, torch.tensor([0, 3, 2, 1]),
                                                        weight=torch.tensor([1.0, 2, 0.5, 1, 3])),
    "cross entropy, soft": lambda y: F.cross_entropy(y, torch.full((4, 5), 0.2)),
    "nll": lambda y: F.nll_loss(F.log_softmax(y, -1), torch.tensor([0, 3, 2, 1])),
    "bce": lambda y: F.binary_cross_entropy(torch.sigmoid(y.float()), torch.full((4, 5), 0.25)),
    "bce with logits": lambda y: F.binary_cross_entropy_with_logits(y, torch.full((4, 5), 0.25),
                                                                    pos_weight=torch.arange(5.0)),
    "mse": lambda y: F.mse_loss(y, torch.ones(4, 5)),
    "l1": lambda y: F.l1_loss(y, torch.ones(4, 5)),
    "smooth l1": lambda y: F.smooth_l1_loss(y, torch.ones(4, 5), beta=0.5),
    "huber": lambda y: F.huber_loss(y, torch.ones(4, 5)),
    "kl": lambda y: F.kl_div(F.log_softmax(y, -1), torch.full((4, 5), 0.2), reduction="batchmean"),
    "cosine": lambda y: F.cosine_embedding_loss(y, torch.ones(4, 5), torch.tensor([1, -1, 1, 1])),
    "triplet": lambda y: F.triplet_margin_loss(y, y.roll(1, 0), y.roll(2, 0)),
    "hinge": lambda y: F.hinge_embedding_loss(y, torch.ones(4, 5).copysign(torch.arange(-2.0, 3))),
    "several": lambda y: F.mse_loss(y, torch.ones(4, 5)) + 0.1 * y.pow(2).mean() + y.abs().amax(-1).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, precision):
    def make():
        model = nn.Linear(6, 5)
        return Program(lambda x: LOSSES[name](model(x)), leaf(4, 6), watch=[model])
    check_step(make, autocast=precision == "bf16", graphs=None)
