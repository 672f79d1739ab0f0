"""Small configurations of models that people train: name -> make(dropout), which gives (module, keyword arguments); the
module's result has a loss. They are from transformers; those that it lacks are our own."""
import typing

import torch
import torch.nn.functional as F
from torch import nn


CLASSES = "single_label_classification"  # otherwise the first call of a model writes it into its configuration


def ids(*shape, below=50):
    return torch.randint(3, below, shape)


def _masked(config_class, model_class, **settings):
    def make(dropout):
        model = model_class(config_class(vocab_size=50, **{name: dropout if value == "dropout" else value
                                                           for name, value in settings.items()}))
        mask, labels = torch.ones(2, 10, dtype=torch.long), ids(2, 10)
        mask[1, 7:] = 0
        labels[mask == 0] = -100
        return model, dict(input_ids=ids(2, 10), attention_mask=mask, labels=labels)
    return make


def bert(dropout):
    from transformers import BertConfig, BertForMaskedLM
    return _masked(BertConfig, BertForMaskedLM, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                   intermediate_size=24, hidden_dropout_prob="dropout",
                   attention_probs_dropout_prob="dropout")(dropout)


def distilbert(dropout):
    from transformers import DistilBertConfig, DistilBertForMaskedLM
    return _masked(DistilBertConfig, DistilBertForMaskedLM, dim=16, n_layers=2, n_heads=2, hidden_dim=24,
                   dropout="dropout", attention_dropout="dropout")(dropout)


def gpt2(dropout):
    from transformers import GPT2Config, GPT2LMHeadModel
    return _masked(GPT2Config, GPT2LMHeadModel, n_embd=16, n_layer=2, n_head=2, n_positions=32, use_cache=False,
                   resid_pdrop="dropout", embd_pdrop="dropout", attn_pdrop="dropout")(dropout)


def llama(dropout):
    from transformers import LlamaConfig, LlamaForCausalLM
    return _masked(LlamaConfig, LlamaForCausalLM, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                   num_key_value_heads=2, intermediate_size=24, use_cache=False, attention_dropout="dropout")(dropout)


def t5(dropout):
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0,
                      dropout_rate=dropout, use_cache=False)
    return T5ForConditionalGeneration(config), dict(input_ids=ids(2, 8), labels=ids(2, 5))


def vit(dropout):
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16,
                       patch_size=8, num_labels=4, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
                       problem_type=CLASSES)
    return ViTForImageClassification(config), dict(pixel_values=torch.randn(3, 3, 16, 16),
                                                   labels=torch.tensor([0, 3, 1]))


def resnet(dropout):
    from transformers import ResNetConfig, ResNetForImageClassification
    config = ResNetConfig(problem_type=CLASSES, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], num_labels=4)
    return ResNetForImageClassification(config), dict(pixel_values=torch.randn(4, 3, 32, 32),
                                                      labels=torch.tensor([0, 3, 1, 1]))


def convnext(dropout):
    from transformers import ConvNextConfig, ConvNextForImageClassification
    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=4, drop_path_rate=dropout,
                            problem_type=CLASSES)
    return ConvNextForImageClassification(config), dict(pixel_values=torch.randn(3, 3, 32, 32),
                                                        labels=torch.tensor([0, 3, 1]))


def whisper(dropout):
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    config = WhisperConfig(d_model=16, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=24, num_mel_bins=8,
                           max_source_positions=10, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=24,
                           vocab_size=50, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                           dropout=dropout, attention_dropout=dropout, use_cache=False)
    return WhisperForConditionalGeneration(config), dict(input_features=torch.randn(2, 8, 20), labels=ids(2, 5))


def clip(dropout):
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
                 attention_dropout=dropout)
    text = CLIPTextConfig(vocab_size=50, eos_token_id=2, **sizes)
    image = CLIPVisionConfig(image_size=16, patch_size=8, **sizes)
    config = CLIPConfig(text_config=text.to_dict(), vision_config=image.to_dict(), projection_dim=8)
    return CLIPModel(config), dict(input_ids=ids(3, 6), pixel_values=torch.randn(3, 3, 16, 16), return_loss=True)


# ---- our own


class Result(typing.NamedTuple):
    loss: torch.Tensor


class WithLoss(nn.Module):
    """The result has a loss, as in transformers."""

    def forward(self, **inputs):
        return Result(self.loss(**inputs))


class CharacterLstm(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(30, 8), nn.Dropout(dropout)
        self.lstm, self.out = nn.LSTM(8, 12, 2, batch_first=True, dropout=dropout), nn.Linear(12, 30)

    def loss(self, text):
        y, _ = self.lstm(self.embedding(text[:, :-1]))
        return F.cross_entropy(self.out(self.dropout(y)).flatten(0, 1), text[:, 1:].flatten())


class CellLstm(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(30, 8), nn.LSTMCell(8, 12), nn.Linear(12, 30)
        self.dropout = nn.Dropout(dropout)

    def loss(self, text):
        state, total = None, 0
        for t in range(text.shape[1] - 1):
            state = self.cell(self.embedding(text[:, t]), state)
            total = total + F.cross_entropy(self.out(self.dropout(state[0])), text[:, t + 1])
        return total / (text.shape[1] - 1)


class Vae(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 20))

    def loss(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        apart = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
        return F.binary_cross_entropy_with_logits(self.decoder(z), x, reduction="sum") + apart


class Block(nn.Module):
    def __init__(self, ins, outs, dropout):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(ins, outs, 3, padding=1), nn.GroupNorm(2, outs), nn.SiLU(),
                                    nn.Dropout2d(dropout), nn.Conv2d(outs, outs, 3, padding=1), nn.SiLU())

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, dropout, time=False):
        super().__init__()
        self.first, self.down = Block(1, 4, dropout), Block(4, 8, dropout)
        self.middle, self.up = Block(8, 8, dropout), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last, self.out = Block(8, 4, dropout), nn.Conv2d(4, 1, 1)
        self.time = nn.Linear(8, 8) if time else None

    def forward(self, x, t=None):
        a = self.first(x)
        b = self.middle(self.down(F.max_pool2d(a, 2)))
        if self.time is not None:
            angles = t[:, None] * torch.exp(-torch.arange(4, device=t.device) / 2.0)
            b = b + self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        return self.out(self.last(torch.cat([self.up(b), a], 1)))


class Segmentation(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.net = UNet(dropout)

    def loss(self, x, y):
        made = self.net(x)
        dice = 1 - 2 * (made.sigmoid() * y).sum() / (made.sigmoid() + y).sum()
        return F.binary_cross_entropy_with_logits(made, y) + dice


class Diffusion(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.net = UNet(dropout, time=True)
        self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.05, 50), 0))

    def loss(self, x):
        t = torch.randint(0, 50, (x.shape[0],), device=x.device)
        noise, kept = torch.randn_like(x), self.kept[t][:, None, None, None]
        return F.mse_loss(self.net(kept.sqrt() * x + (1 - kept).sqrt() * noise, t.float()), noise)


class GraphNet(WithLoss):
    def __init__(self, dropout):
        super().__init__()
        self.message, self.update = nn.Linear(12, 8), nn.GRUCell(8, 6)
        self.out, self.dropout = nn.Linear(6, 3), nn.Dropout(dropout)

    def loss(self, x, edges, labels):
        source, target = edges
        for _ in range(2):
            sent = self.dropout(self.message(torch.cat([x[source], x[target]], -1)).relu())
            kind = dict(dtype=sent.dtype, device=x.device)
            received = torch.zeros(x.shape[0], 8, **kind).index_add(0, target, sent)
            degree = torch.zeros(x.shape[0], **kind).index_add(0, target, torch.ones(len(target), **kind))
            x = self.update(received / degree.clamp(min=1)[:, None], x)
        return F.cross_entropy(self.out(x), labels)


class Recommender(WithLoss):
    """Like DLRM: bags of ids and numbers, and the products of each pair of them."""

    def __init__(self, dropout):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, 4, mode="sum") for n in (10, 20, 15))
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1))

    def loss(self, dense, sparse, offsets, clicked):
        x = self.bottom(dense).float()
        all_ = torch.stack([x] + [bag(i, offsets) for bag, i in zip(self.bags, sparse)], 1)
        common = all_ @ all_.transpose(1, 2)
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        return F.binary_cross_entropy_with_logits(self.top(torch.cat([x, common[:, rows, columns]], 1)), clicked)


def own(module, **inputs):
    return lambda dropout: (module(dropout), {name: make() for name, make in inputs.items()})


MODELS = {
    "BERT": bert, "DistilBERT": distilbert, "GPT-2": gpt2, "Llama": llama, "T5": t5, "ViT": vit, "ResNet": resnet,
    "ConvNeXt": convnext, "Whisper": whisper, "CLIP": clip,
    "character LSTM": own(CharacterLstm, text=lambda: torch.randint(0, 30, (3, 9))),
    "LSTM cells": own(CellLstm, text=lambda: torch.randint(0, 30, (3, 6))),
    "VAE": own(Vae, x=lambda: torch.rand(6, 20)),
    "U-Net": own(Segmentation, x=lambda: torch.randn(2, 1, 8, 8), y=lambda: (torch.rand(2, 1, 8, 8) > 0.5).float()),
    "diffusion": own(Diffusion, x=lambda: torch.randn(3, 1, 8, 8)),
    "graph": own(GraphNet, x=lambda: torch.randn(7, 6), edges=lambda: torch.randint(0, 7, (2, 15)),
                 labels=lambda: torch.randint(0, 3, (7,))),
    "DLRM": own(Recommender, dense=lambda: torch.randn(4, 5), sparse=lambda: torch.randint(0, 10, (3, 9)),
                offsets=lambda: torch.tensor([0, 2, 2, 5]), clicked=lambda: torch.tensor([[1.0], [0], [1], [0]])),
}
NO_DROPOUT = {"ResNet"}
EMBEDDING_BAGS = {"DLRM"}  # they take no bfloat16 gradient
