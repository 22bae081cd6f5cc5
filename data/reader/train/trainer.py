"""The trainer: the twin, its moving average and its optimizers, one step at a time."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from colour import colour
from model import TinyVL
from weights import read_weights

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Trainer:
    """Owns the model, its moving average, the optimizers and the step count."""

    def __init__(self, learning_rate: float, init: Path | None) -> None:
        """Begin with random weights, with a checkpoint of this script (.pt), or with a folder of safetensors."""
        torch.manual_seed(0)
        self.model = TinyVL().to(DEVICE)
        saved = torch.load(init, map_location=DEVICE) if init and init.suffix == ".pt" else None
        if saved:
            self.model.load_state_dict(saved["model"])
        elif init:
            self.model.load_state_dict({name: weight.float() for name, weight in read_weights(init).items()})
        self.optimizers = optimizers(self.model, learning_rate)
        self.base_rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        for optimizer, state in zip(self.optimizers, saved["opts"] if saved else (), strict=bool(saved)):
            optimizer.load_state_dict(state)
        average = saved["ema"] if saved else self.model.state_dict()
        self.average = {name: weight.detach().clone().to(DEVICE) for name, weight in average.items()}
        self.step = self.first_step = saved["step"] if saved else 0
        self.warm_up_steps = 20 if saved else 200

    def set_rate(self, done: float) -> float:
        """Scale the learning rates: warm-up, full rate for a fifth of the training, then straight down to 2 %."""
        warm = min(1, (self.step - self.first_step + 1) / self.warm_up_steps)
        scale = warm * (1 if done < 0.2 else max(0.02, (1 - done) / 0.8))
        for optimizer, rates in zip(self.optimizers, self.base_rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = scale * rate
        return scale

    def update(self, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one step on a batch; give loss and accuracy over the tokens of the answers."""
        ids, positions, at, labels, mask = (
            batch[name].to(DEVICE, non_blocking=True) for name in ("ids", "pos", "img_at", "lab", "mask")
        )
        pictures = colour(mask)
        answered = labels >= 0
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            pictures = pictures.bfloat16() if DEVICE == "cuda" else pictures
            logits = self.model.logits(self.model.hidden(ids, positions, pictures, at)[answered])
            loss = F.cross_entropy(logits.float(), labels[answered])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._move_average()
        self.step += 1
        return loss.detach(), (logits.detach().argmax(-1) == labels[answered]).float().mean()

    @torch.no_grad()
    def _move_average(self) -> None:
        """Move the average towards the weights, every fourth step."""
        if self.step % 4 == 0:
            decay = min(0.998, (self.step + 1) / (self.step + 20))
            weights = self.model.state_dict()
            torch._foreach_lerp_(list(self.average.values()), [weights[name] for name in self.average], 1 - decay**4)

    def save(self, path: Path) -> None:
        """Save weights, average, optimizers and step."""
        states = [optimizer.state_dict() for optimizer in self.optimizers]
        torch.save({"model": self.model.state_dict(), "ema": self.average, "opts": states, "step": self.step}, path)


def optimizers(model: TinyVL, rate: float) -> list[torch.optim.Optimizer]:
    """Give Muon for the matrices, and AdamW at half the rate for embeddings and vectors."""
    named = dict(model.named_parameters())
    matrices = [name for name, weight in named.items() if weight.ndim == 2 and "embed_tokens" not in name]
    embeddings = [named[name] for name in named if name not in matrices and named[name].ndim >= 2]
    vectors = [weight for weight in named.values() if weight.ndim < 2]
    groups = [
        {"params": embeddings, "lr": rate * 0.5, "weight_decay": 0.01},
        {"params": vectors, "lr": rate * 0.5, "weight_decay": 0},
    ]
    weights = [named[name] for name in matrices]
    muon = torch.optim.Muon(weights, lr=rate, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=DEVICE == "cuda")]
