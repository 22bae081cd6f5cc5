"""A reading: one page as the model read it, with all that scoring needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headscope.families import Family, Picture, language_model
from headscope.page.image import PageError
from headscope.probing.align import Answer
from headscope.probing.pieces import decode_answer
from headscope.probing.prompt import Recorded, ask, record


@dataclass(frozen=True)
class Reader:
    """A model with its processor and family, asked one question about every page.

    max_new_tokens: the longest answer, in tokens; a longer one is cut.
    """

    model: Any
    processor: Any
    family: Family
    question: str
    max_new_tokens: int

    @property
    def decoder(self) -> nn.Module:
        """The decoder stack."""
        return language_model(self.model)

    @property
    def tokenizer(self) -> Any:
        """The processor's tokenizer."""
        return self.processor.tokenizer

    def generate(self, name: str, image: np.ndarray) -> Reading:
        """Let the model answer, greedily and by its normal path, and keep the prompt as the decoder received it."""
        inputs, picture = self.ask(name, image)
        with record(self.decoder) as recorded:
            output = self.model.generate(**inputs, **self.greedy())
        ids = output[0, inputs["input_ids"].shape[1] :]
        return self._reading(ids.cpu(), recorded, picture)

    @torch.no_grad()
    def given(self, name: str, image: np.ndarray, text: str) -> Reading:
        """Take `text` for the answer; the picture is encoded, the decoder does not run."""
        inputs, picture = self.ask(name, image)
        with record(self.decoder, stop=True) as recorded:
            self.model(**inputs)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][: self.max_new_tokens]
        return self._reading(torch.tensor(ids, dtype=torch.int64), recorded, picture)

    def ask(self, name: str, image: np.ndarray) -> tuple[Any, Picture]:
        """Give the inputs for a page and its cells; PageError for a picture that the processor cannot take."""
        if not getattr(self.processor, "chat_template", None):
            ask(self.processor, [image], self.question)  # a fault of the model, not of the page
        try:
            inputs = ask(self.processor, [image], self.question)
            picture = self.family.pictures(self.model.config, self.processor, inputs, [image.shape[:2]])[0]
        except (ValueError, TypeError, ZeroDivisionError, RuntimeError) as error:
            raise PageError(f"{name}: the processor cannot take it: {' '.join(str(error).split())}") from error
        return inputs.to(self.model.device, dtype=self.model.dtype), picture

    def greedy(self) -> dict[str, Any]:
        return {
            "do_sample": False,
            "num_beams": 1,
            "max_new_tokens": self.max_new_tokens,
            "temperature": None,
            "top_p": None,
            "top_k": None,
        }

    def _reading(self, ids: Tensor, recorded: Recorded, picture: Picture) -> Reading:
        answer = decode_answer(self.tokenizer, ids.tolist(), raw_pieces=self.family.raw_pieces)
        return Reading(answer, ids, recorded, picture)


@dataclass(frozen=True)
class Reading:
    """A page read once. ids: int64 [token], the answer. recorded: the prompt, encoded. picture: where its cells are."""

    answer: Answer
    ids: Tensor
    recorded: Recorded
    picture: Picture

    def rows(self, tokens: list[int]) -> Tensor:
        """Give the query positions, int64 [row], that predict these tokens; the first token's is the prompt's last."""
        return torch.tensor(tokens, dtype=torch.int64) + self.recorded.tokens - 1

    def arguments(self, decoder: nn.Module) -> dict[str, Any]:
        """Give the decoder's arguments for a pass over prompt and answer, less the last token: it predicts nothing."""
        return self.recorded.extended(decoder, self.ids[:-1])
