"""Turning heads to their positions, keys and values put where they belong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from headscope.kernels.rotate import Rotary, reference, rotate
from tests.kernels.ragged import normal, ragged

HEADS, KVS = 6, 2


def rotary(dim: int, norm: bool, dtype: torch.dtype, device: str) -> Rotary:
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, dim, 2, device=device).float() / dim)
    gains = [normal(dim, dtype=dtype, device=device, seed=seed) if norm else None for seed in (1, 2)]
    return Rotary(frequencies, 1.25, *gains)


def test_heads_turn_as_in_transformers() -> None:
    states = normal(2, 5, HEADS, 32, dtype=torch.float32)
    positions = torch.tensor([[3, 4, 5, 6, 7], [100, 101, 102, 103, 104]])
    given = ragged([[9, 5], [7, 30]], 32, torch.float32)
    turning = rotary(32, False, torch.float32, "cpu")
    angles = positions[..., None].float() * turning.frequencies
    angles = torch.cat([angles, angles], dim=-1)
    packed = torch.cat([states.flatten(2), normal(2, 5, 2 * KVS * 32, dtype=torch.float32)], dim=-1)
    query = rotate(packed, positions, turning, given.key, given.value, given.starts, given.lengths)
    expected = apply_rotary_pos_emb(
        states.transpose(1, 2), states.transpose(1, 2), angles.cos() * 1.25, angles.sin() * 1.25
    )[0]
    torch.testing.assert_close(query, expected)


def test_keys_and_values_stand_in_the_last_slots() -> None:
    given, before = (ragged([[9, 5], [7, 30]], 32, torch.float32) for _ in range(2))
    packed = normal(2, 3, (HEADS + 2 * KVS) * 32, dtype=torch.float32)
    positions = torch.zeros(2, 3, dtype=torch.int64)
    plain = Rotary(torch.ones(16))
    rotate(packed, positions, plain, given.key, given.value, given.starts, given.lengths)
    heads = packed.unflatten(-1, (-1, 32))
    for index, own in enumerate(given.segments):
        row, kv = divmod(index, KVS)
        torch.testing.assert_close(given.key[own][-3:], heads[row, :, HEADS + kv])
        torch.testing.assert_close(given.value[own][-3:], heads[row, :, HEADS + KVS + kv])
        assert torch.equal(given.key[own][:-3], before.key[own][:-3])


@pytest.mark.gpu
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize(("dim", "dtype"), [(32, torch.float32), (80, torch.bfloat16), (128, torch.float16)])
def test_the_kernel_rotates_as_the_reference(dim: int, dtype: torch.dtype, new: int, norm: bool, device: str) -> None:
    packed = normal(2, new, (HEADS + 2 * KVS) * dim, dtype=dtype, device=device)
    positions = torch.tensor([[7], [70001]], device=device) + torch.arange(new, device=device)
    turning, ends = rotary(dim, norm, dtype, device), []
    for way in (rotate, reference):
        given = SimpleNamespace(**vars(ragged([[9, 5], [7, 30]], dim, dtype, device)))
        query = way(packed, positions, turning, given.key, given.value, given.starts, given.lengths)
        ends.append((query, given.key.nan_to_num(9), given.value.nan_to_num(9)))
    off = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for ours, theirs in zip(*ends, strict=True):
        torch.testing.assert_close(ours, theirs, atol=off, rtol=off)
    assert torch.equal(ends[0][2], ends[1][2])
