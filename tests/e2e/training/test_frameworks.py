"""Training loops of other packages around a compiled model: the Trainer of Transformers, Accelerate and Lightning, each
with framejit.compile(model) and under FRAMEJIT=1. Every way of running is a process of its own."""
import json
import os

import pytest
import torch

import programs

pytestmark = pytest.mark.nothing_captured  # here: the other processes compile

MODEL = """
import json
import os
import sys
import torch
from torch import nn

way = sys.argv[1]
if way != "plain":
    import framejit
torch.manual_seed(0)


def compiled(model):
    return framejit.compile(model) if way == "compile" else model


def finish(losses, module):
    seen = framejit.stats() if way != "plain" else {}
    weights = [p.detach().double().sum().item() for p in module.parameters()]
    print(json.dumps(dict(losses=losses, weights=weights, drawn=torch.rand(1).item(), seen=seen)))
"""

TRAINER = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    max_position_embeddings=32)
rows = [dict(input_ids=torch.randint(0, 64, (12,)), attention_mask=torch.ones(12, dtype=torch.long), labels=i % 2)
        for i in range(40)]
module = BertForSequenceClassification(config)
trainer = Trainer(compiled(module), TrainingArguments(
    output_dir=sys.argv[2], per_device_train_batch_size=8, num_train_epochs=2, logging_steps=1, save_strategy="no",
    eval_strategy="epoch", report_to=[], use_cpu=True, disable_tqdm=True, seed=0, learning_rate=1e-3),
    train_dataset=rows, eval_dataset=rows[:16])
trainer.train()
finish([entry[key] for entry in trainer.state.log_history for key in ("loss", "grad_norm", "eval_loss")
        if key in entry], module)
"""

ACCELERATE = """
from accelerate import Accelerator

module = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(16), nn.Linear(16, 1))
data = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.AdamW(module.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
model, optimizer, loader, scheduler = accelerator.prepare(compiled(module), optimizer, loader, scheduler)
losses = []
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                losses.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
finish(losses, module)
"""

LIGHTNING = """
import logging
import warnings
import lightning

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
losses = []


class Task(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        losses.append(nn.functional.cross_entropy(self.model(batch[0]), batch[1]).item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)


module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
data = torch.utils.data.TensorDataset(torch.randn(48, 1, 8, 8), torch.randint(0, 5, (48,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
                            default_root_dir=sys.argv[2])
trainer.fit(Task(compiled(module)), loader, loader)
finish(losses, module)
"""

PROGRAMS = {"Trainer": TRAINER, "Accelerate": ACCELERATE, "Lightning": LIGHTNING}


def run(name, way, tmp_path):
    script = tmp_path / f"{name}.py"
    script.write_text(MODEL + PROGRAMS[name])
    env = {key: value for key, value in os.environ.items() if key != "FRAMEJIT"}
    if way == "everywhere":
        env["FRAMEJIT"] = "1"
    done = programs.run("", way, str(tmp_path / "out"), file=script, env=env,
                        imported=("transformers.trainer", "accelerate", "lightning"))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_of_another_package(name, tmp_path):
    pytest.importorskip(name.lower() if name != "Trainer" else "accelerate")
    plain = run(name, "plain", tmp_path)
    for way in ("compile", "everywhere"):
        ours = run(name, way, tmp_path)
        assert len(ours["losses"]) == len(plain["losses"]) > 10
        for key in ("losses", "weights"):
            torch.testing.assert_close(torch.tensor(ours[key]), torch.tensor(plain[key]), rtol=1e-4, atol=1e-4,
                                       msg=lambda m: f"{way}, {key}: {m}")
        assert ours["drawn"] == plain["drawn"], "the generator"
        seen = ours["seen"]
        assert seen["hits"] >= 8 and seen["fallbacks"] == 0, seen
        # Everywhere, the backward may be part of a traced step.
        assert way != "compile" or (seen["backward_runs"] >= 8 and seen["graph_breaks"] == 0), seen
