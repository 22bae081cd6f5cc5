"""Processors: every logits processor sees, at each position of a block, the ids that plain decoding would show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation import logits_process

# Of transformers' own processors: those that look at nothing but the scores of one position,
INDEPENDENT = frozenset(
    {
        "EpsilonLogitsWarper",
        "EtaLogitsWarper",
        "InfNanRemoveLogitsProcessor",
        "LogitNormalization",
        "MinPLogitsWarper",
        "SuppressTokensLogitsProcessor",
        "TemperatureLogitsWarper",
        "TopHLogitsWarper",
        "TopKLogitsWarper",
        "TopPLogitsWarper",
        "TypicalLogitsWarper",
    }
)
# and those that look at one row's ids as well. Neither remember what they saw.
ROW_WISE = INDEPENDENT | {
    "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
}


class Processors:
    """A list of logits processors.

    independent: they may run over a whole block at once. in_step: one of them may look at the whole batch or remember
    what it saw, so that rows must go on together and each position must be settled before the next is shown.
    """

    def __init__(self, processors: Sequence[Any]) -> None:
        self.processors: Any = processors
        self.empty = not processors
        self.independent = all(_is_one_of(each, INDEPENDENT) for each in processors)
        self.in_step = not all(_is_one_of(each, ROW_WISE) for each in processors)

    def block(self, logits: Tensor, ids: Tensor, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
        """Process a block: logits [row, new, token] -> scores, float32.

        ids: int64 [row, capacity], those of the block's proposals in their places. lengths: of each row's ids before
        the block. rows: that still go on; what others get is not processed.
        """
        scores = logits.float()
        if self.empty:
            return scores
        if self.independent:
            return self.processors(ids[:1, :1].expand(scores.shape[0] * scores.shape[1], 1), scores.flatten(0, 1)).view(
                scores.shape
            )
        found = scores.clone()
        for length in sorted({lengths[row] for row in rows}):
            these = torch.tensor([row for row in rows if lengths[row] == length], device=ids.device)
            for at in range(logits.shape[1]):  # the whole batch, since some know its rows by their number
                found[these, at] = self.processors(ids[:, : length + at], scores[:, at].clone())[these]
        return found

    def together(self, logits: Tensor, ids: Tensor, length: int) -> Tensor:
        """Process one position of all rows, as plain decoding does: logits [row, token] -> scores, float32."""
        return self.processors(ids[:, :length], logits.to(torch.float32, copy=True))


def _is_one_of(processor: Any, names: frozenset[str]) -> bool:
    kind = type(processor)
    return kind.__name__ in names and getattr(logits_process, kind.__name__, None) is kind
