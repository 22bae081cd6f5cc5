"""Windows: segments of a layer whose queries see only the last keys, whichever of them a segment holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headscope.cache.segments import Segments
from headscope.kernels import ragged_decode

NEVER = torch.iinfo(torch.int32).max  # a place that no window passes


@dataclass(eq=False)
class WindowedSegments(Segments):
    """Segments of a prompt's tokens and all that came after, of which a query sees those in its window.

    window: tokens that a query sees, itself included. prompt: int32 [row, 1], tokens of the row's prompt. kept: int32
    [row, kv], how many of them a segment holds. places: int32 [row, kv, most], where in the row's prompt they stood.
    """

    window: int = 0
    prompt: Tensor | None = None
    kept: Tensor | None = None
    places: Tensor | None = None

    def slide(self, window: int, chosen: Tensor, there: Tensor) -> WindowedSegments:
        """Give the segments a window. chosen: bool [row, kv, token], what they hold; there: bool [row, token]."""
        ranks = (there.cumsum(-1, dtype=torch.int32) - 1)[:, None].expand(chosen.shape)
        self.window, self.kept = window, chosen.sum(-1, dtype=torch.int32)
        self.prompt = there.sum(-1, keepdim=True, dtype=torch.int32)
        most = int(self.kept.max())
        self.places = torch.where(chosen, ranks, NEVER).sort(dim=-1).values[..., :most].contiguous()
        return self

    def passed(self, back: int) -> Tensor:
        """Count the tokens of each segment that the query `back` tokens before the last one does not see: [row, kv]."""
        assert self.prompt is not None and self.kept is not None and self.places is not None
        first = self.prompt + self.lengths - self.kept - back - self.window  # the first place that is seen
        held = (self.places < first[..., None]).sum(-1, dtype=torch.int32)
        return held + (first - self.prompt).clamp_min(0)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        """Attend query by query, each with a window of its own: [row, head, new, dim] -> [row, new, head, dim]."""
        outputs = []
        for at in range(query.shape[2]):
            back = query.shape[2] - 1 - at
            gone = self.passed(back)
            starts, lengths = self.starts + gone, self.lengths - back - gone
            outputs.append(ragged_decode(query[:, :, at], self.key, self.value, starts, lengths, scaling)[0])
        return torch.stack(outputs, dim=1)
