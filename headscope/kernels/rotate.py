"""Rotate: a step's queries and keys turned to their positions, its keys and values put behind the segments' tokens.

Rotary embedding of RoFormer (Su et al., 2021) in the halves' layout, an RMS norm of each head before it where a model
has one (Qwen3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import torch

from headscope.kernels.backend import (
    INTERPRETED,
    await_previous,
    early,
    jit,
    narrow,
    on_triton,
    overlaps,
    power_of_2,
    tl,
)
from headscope.kernels.norm import scaled
from headscope.kernels.segments import check_segments


@dataclass(frozen=True, eq=False)
class Rotary:
    """How heads turn. frequencies: float32 [dim / 2]. scale: of cosine and sine.

    query_gain, key_gain: [dim], of a norm of each head; None: none.
    """

    frequencies: torch.Tensor
    scale: float = 1.0
    query_gain: torch.Tensor | None = None
    key_gain: torch.Tensor | None = None
    eps: float = 1e-6

    @property
    def gains(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Both gains, the query's first."""
        return self.query_gain, self.key_gain


def turn(states: torch.Tensor, positions: torch.Tensor, rotary: Rotary, gain: torch.Tensor | None) -> torch.Tensor:
    """Normalise and turn heads [row, new, head, dim] to positions [row, new], as the models of transformers do."""
    if gain is not None:
        states = scaled(states, gain, rotary.eps)
    angles = positions[..., None, None].float() * rotary.frequencies
    angles = torch.cat([angles, angles], dim=-1)
    cosine, sine = ((wave * rotary.scale).to(states.dtype) for wave in (angles.cos(), angles.sin()))
    low, high = states.chunk(2, dim=-1)
    return states * cosine + torch.cat([-high, low], dim=-1) * sine


def reference(
    states: torch.Tensor,
    positions: torch.Tensor,
    rotary: Rotary,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Rotate with plain PyTorch: the oracle, and the way for CPUs. See `rotate`."""
    kvs, new = lengths.shape[1], positions.shape[1]
    heads = states.unflatten(-1, (-1, key.shape[1]))
    query, new_key, new_value = heads.split([heads.shape[2] - 2 * kvs, kvs, kvs], dim=2)
    slots = (starts + lengths)[..., None] - new + torch.arange(new, device=key.device)
    key[slots] = turn(new_key, positions, rotary, rotary.key_gain).transpose(1, 2)
    value[slots] = new_value.transpose(1, 2)
    return turn(query, positions, rotary, rotary.query_gain).transpose(1, 2).contiguous()


@jit
@no_type_check
def rotate_kernel(
    states,
    positions,
    frequencies,
    query_gain,
    key_gain,
    query,
    key,
    value,
    starts,
    lengths,
    new,
    heads,
    kvs,
    scale,
    eps,
    NORM: tl.constexpr,
    DIM: tl.constexpr,
    HALVES: tl.constexpr,
    OVERLAP: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """Take one head of one token where it belongs."""
    HALF: tl.constexpr = DIM // 2
    token = tl.program_id(0)
    head = tl.program_id(1)
    row = token // new
    place = token % new
    dim = tl.arange(0, HALVES)
    mask = dim < HALF
    own = states + token.to(tl.int64) * (heads + 2 * kvs) * DIM + head * DIM + dim
    dtype = states.dtype.element_ty
    await_previous(OVERLAP)
    low = tl.load(own, mask=mask, other=0.0)
    high = tl.load(own + HALF, mask=mask, other=0.0)
    if head < heads + kvs:
        low = low.to(tl.float32)
        high = high.to(tl.float32)
        if NORM:
            gain = query_gain
            if head >= heads:
                gain = key_gain
            norm = tl.rsqrt((tl.sum(low * low, 0) + tl.sum(high * high, 0)) / DIM + eps)
            first = tl.load(gain + dim, mask=mask, other=0.0).to(tl.float32)
            second = tl.load(gain + HALF + dim, mask=mask, other=0.0).to(tl.float32)
            low = first * narrow(low * norm, dtype, INTERPRETED).to(tl.float32)
            high = second * narrow(high * norm, dtype, INTERPRETED).to(tl.float32)
        angle = tl.load(positions + token).to(tl.float32) * tl.load(frequencies + dim, mask=mask, other=0.0)
        cosine = narrow(tl.cos(angle) * scale, dtype, INTERPRETED).to(tl.float32)
        sine = narrow(tl.sin(angle) * scale, dtype, INTERPRETED).to(tl.float32)
        turned = low * cosine - high * sine
        high = narrow(high * cosine + low * sine, dtype, INTERPRETED)
        low = narrow(turned, dtype, INTERPRETED)
    if head < heads:
        to = query + ((row.to(tl.int64) * heads + head) * new + place) * DIM + dim
    else:
        kv = (head - heads) % kvs
        segment = row * kvs + kv
        slot = tl.load(starts + segment) + tl.load(lengths + segment) - new + place
        to = key + slot * DIM + dim
        if head >= heads + kvs:
            to = value + slot * DIM + dim
    tl.store(to, low, mask=mask)
    tl.store(to + HALF, high, mask=mask)


def launch(
    states: torch.Tensor,
    positions: torch.Tensor,
    rotary: Rotary,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Run the kernel. See `rotate`."""
    (rows, new), (kvs, dim) = positions.shape, (lengths.shape[1], key.shape[1])
    heads = states.shape[-1] // dim - 2 * kvs
    query = states.new_empty(rows, heads, new, dim)
    overlap = overlaps(states.device)
    with torch.cuda.device_of(states):
        rotate_kernel[(rows * new, heads + 2 * kvs)](
            states,
            positions,
            rotary.frequencies,
            rotary.query_gain,
            rotary.key_gain,
            query,
            key,
            value,
            starts,
            lengths,
            new,
            heads,
            kvs,
            rotary.scale,
            rotary.eps,
            NORM=rotary.query_gain is not None,
            DIM=dim,
            HALVES=power_of_2(dim // 2),
            OVERLAP=overlap,
            INTERPRETED=INTERPRETED,
            num_warps=1,
            **early(overlap),
        )
    return query


def rotate(
    states: torch.Tensor,
    positions: torch.Tensor,
    rotary: Rotary,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Turn a step's queries and keys; write keys and values into the segments' last `new` slots.

    states: [row, new, (heads + 2 * kvs) * dim], queries, keys, values of each token side by side, contiguous.
    positions: int64 [row, new]. key, value, starts, lengths: the segments, see `headscope.kernels.segments`, whose
    lengths count the new tokens already. Gives the queries, [row, head, new, dim].
    """
    check_segments(key, value, starts, lengths)
    if on_triton(states):
        return launch(states.contiguous(), positions.contiguous(), rotary, key, value, starts, lengths)
    return reference(states, positions, rotary, key, value, starts, lengths)
