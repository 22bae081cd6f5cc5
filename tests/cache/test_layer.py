"""A ragged layer: segments that grow in place, tokens that are taken back, windows that slide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headscope.cache import RaggedLayer
from headscope.cache.segments import ROOM

KEPT = torch.tensor([[5, 9], [3, 7]])


def states(new: int, seed: int, dim: int = 8) -> tuple[Tensor, Tensor]:
    """Give random keys and values [2, 2, new, dim]."""
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, new, dim, generator=chance), torch.randn(2, 2, new, dim, generator=chance)


def chosen_of(tokens: int = 12) -> Tensor:
    """Choose some of a prompt's tokens, the last ones among them."""
    order = torch.rand(2, 2, tokens, generator=torch.Generator().manual_seed(4)).argsort(-1)
    return torch.zeros(2, 2, tokens, dtype=torch.bool).scatter_(-1, order, torch.arange(tokens) < KEPT[..., None])


def filled(sliding_window: int | None = None) -> tuple[RaggedLayer, Tensor, Tensor, Tensor]:
    """Give a layer with a compressed prompt of 12 tokens, and what went into it."""
    layer, (key, value), chosen = RaggedLayer(sliding_window), states(12, 0), chosen_of()
    layer.compress(key, value, chosen)
    return layer, key, value, chosen


def segment(layer: RaggedLayer, row: int, kv: int) -> tuple[Tensor, Tensor]:
    """Give one segment's keys and values."""
    held = layer.segments
    assert held is not None
    at = slice(int(held.starts[row, kv]), int(held.starts[row, kv] + held.lengths[row, kv]))
    return held.key[at], held.value[at]


def check(layer: RaggedLayer, key: Tensor, value: Tensor, there: Tensor) -> None:
    """Compare all segments with dense keys and values and what of them is there."""
    for row in range(2):
        for kv in range(2):
            keys, values = segment(layer, row, kv)
            assert torch.equal(keys, key[row, kv, there[row, kv]])
            assert torch.equal(values, value[row, kv, there[row, kv]])


def test_a_prompt_is_packed_and_what_follows_is_appended() -> None:
    layer, key, value, chosen = filled()
    more_key, more_value = states(5, 1)
    layer.extend(more_key, more_value)
    there = torch.cat([chosen, torch.ones(2, 2, 5, dtype=torch.bool)], dim=-1)
    check(layer, torch.cat([key, more_key], 2), torch.cat([value, more_value], 2), there)
    assert layer.get_seq_length() == 17


def test_appending_moves_the_buffers_only_when_the_slack_is_used_up() -> None:
    layer, key, value, chosen = filled()
    moved, before, copied = 0, None, 0
    for step in range(400):
        more = states(1, step + 1)
        key, value = torch.cat([key, more[0]], 2), torch.cat([value, more[1]], 2)
        layer.extend(*more)
        assert layer.segments is not None
        if before not in (None, layer.segments.key.data_ptr()):
            moved, copied = moved + 1, copied + int(layer.segments.lengths.sum())
        before = layer.segments.key.data_ptr()
    assert moved <= 400 / ROOM and copied <= 9 * 400 * 4
    check(layer, key, value, torch.cat([chosen, torch.ones(2, 2, 400, dtype=torch.bool)], dim=-1))


def test_reserved_room_is_not_moved() -> None:
    layer, *_ = filled()
    layer.reserve(300)
    assert layer.segments is not None
    place = layer.segments.key.data_ptr()
    for step in range(300):
        layer.extend(*states(1, step))
    assert layer.segments.key.data_ptr() == place


@pytest.mark.parametrize("gone", [1, 4, 6, 9, 16])
def test_crop_takes_back_what_was_appended_then_the_prompts_kept_tokens(gone: int) -> None:
    layer, key, value, chosen = filled()
    more_key, more_value = states(5, 1)
    layer.extend(more_key, more_value)
    layer.crop(-gone)
    assert layer.get_seq_length() == 17 - gone
    there = torch.cat([chosen, torch.ones(2, 2, 5, dtype=torch.bool)], dim=-1)[..., : 17 - gone]
    key, value = torch.cat([key, more_key], 2)[:, :, : 17 - gone], torch.cat([value, more_value], 2)[:, :, : 17 - gone]
    check(layer, key, value, there)
    again = states(3, 7)
    layer.extend(*again)
    there = torch.cat([there, torch.ones(2, 2, 3, dtype=torch.bool)], dim=-1)
    check(layer, torch.cat([key, again[0]], 2), torch.cat([value, again[1]], 2), there)


@pytest.mark.parametrize("gone", [17, 30])
def test_a_layer_that_is_cropped_to_nothing_is_new(gone: int) -> None:
    layer, *_ = filled()
    layer.extend(*states(5, 1))
    layer.crop(-gone)
    assert layer.get_seq_length() == 0 and not layer.compressed and layer.kv_bytes == 0


def test_crop_refuses_a_positive_length_and_leaves_the_rest_alone() -> None:
    layer, *_ = filled()
    layer.crop(0)
    with pytest.raises(ValueError, match="`crop` takes a negative number, .* got 3"):
        layer.crop(3)
    assert layer.get_seq_length() == 12


def test_padding_among_new_tokens_is_not_held() -> None:
    layer, key, value, chosen = filled()
    more_key, more_value = states(4, 1)
    valid = torch.tensor([[True] * 4, [False, False, True, True]])
    layer.extend(more_key, more_value, valid)
    last = states(1, 2)
    layer.extend(*last)
    there = torch.cat([chosen, valid[:, None].expand(2, 2, 4), torch.ones(2, 2, 1, dtype=torch.bool)], dim=-1)
    key, value = torch.cat([key, more_key, last[0]], 2), torch.cat([value, more_value, last[1]], 2)
    check(layer, key, value, there)
    layer.crop(-3)
    check(layer, key[:, :, :14], value[:, :, :14], there[..., :14])


def dense(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    """The oracle: [row, head, query, dim] over the keys that each query sees, bool [row, head, query, token]."""
    group = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(group, 1).transpose(2, 3) * 0.3
    return logits.masked_fill(~seen, float("-inf")).softmax(-1) @ value.repeat_interleave(group, 1)


@pytest.mark.parametrize("new", [1, 2, 7])
@pytest.mark.parametrize("window", [None, 9])
def test_new_tokens_see_what_is_held_and_each_other_causally(new: int, window: int | None) -> None:
    layer, key, value, chosen = filled(window)
    query = torch.randn(2, 6, new, 8, generator=torch.Generator().manual_seed(5))
    more = states(new, 1)
    layer.update(*more)
    found = layer.attend(query, 0.3)
    key, value = torch.cat([key, more[0]], 2), torch.cat([value, more[1]], 2)
    places, at = torch.arange(12 + new), 12 + torch.arange(new)[:, None]
    seen = (places <= at) & ((places > at - window) if window else torch.ones(1, dtype=torch.bool))
    there = torch.cat([chosen, torch.ones(2, 2, new, dtype=torch.bool)], dim=-1).repeat_interleave(3, 1)
    expected = dense(query, key, value, seen & there[:, :, None]).transpose(1, 2)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "valid",
    [
        [[True, True, True, True], [False, False, True, True]],
        [[True, False, True, False], [False, True, False, False]],
        [[False, False, False, False], [False, True, True, True]],
    ],
    ids=["left", "anywhere", "nothing but"],
)
def test_new_tokens_see_no_padding_among_each_other(valid: list[list[bool]]) -> None:
    layer, key, value, chosen = filled()
    query = torch.randn(2, 6, 4, 8, generator=torch.Generator().manual_seed(5))
    more, there = states(4, 1), torch.tensor(valid)
    layer.update(*more)
    found = layer.attend(query, 0.3, there)
    key, value = torch.cat([key, more[0]], 2), torch.cat([value, more[1]], 2)
    held = torch.cat([chosen, there[:, None].expand(2, 2, 4)], dim=-1).repeat_interleave(3, 1)
    causal = torch.arange(16) <= 12 + torch.arange(4)[:, None]
    expected = dense(query, key, value, causal & held[:, :, None]).transpose(1, 2)
    assert torch.allclose(found[there], expected[there], atol=1e-5)
    assert found.isfinite().all()


def test_padding_in_front_of_everything_gives_numbers() -> None:
    layer = RaggedLayer()
    layer.compress(*states(3, 0), torch.zeros(2, 2, 3, dtype=torch.bool))
    query, more = torch.randn(2, 4, 2, 8, generator=torch.Generator().manual_seed(5)), states(2, 1)
    layer.update(*more)
    found = layer.attend(query, 0.3, torch.tensor([[True, True], [False, True]]))
    assert found.isfinite().all()
    assert torch.allclose(found[1, 1], more[1][1, :, 1].repeat_interleave(2, 0), atol=1e-6)


def test_a_sliding_layer_drops_what_its_window_has_passed_and_gives_back_a_little() -> None:
    layer, key, value, chosen = filled(9)
    chosen[..., :4] = False
    for step in range(300):
        more = states(1, step + 1)
        key, value = torch.cat([key, more[0]], 2), torch.cat([value, more[1]], 2)
        layer.update(*more)
        found = layer.attend(torch.ones(2, 2, 1, 8), 0.3)
    assert layer.segments is not None and layer.segments.key.shape[0] < 4 * 200
    seen = torch.cat([chosen, torch.ones(2, 2, 300, dtype=torch.bool)], dim=-1)
    seen[..., : 312 - 9] = False
    assert torch.allclose(found, dense(torch.ones(2, 2, 1, 8), key, value, seen[:, :, None]).transpose(1, 2), atol=1e-5)
    layer.crop(-20)
    layer.update(*(part[:, :, 292:293] for part in (key, value)))
    seen = torch.arange(293) >= 293 - 9
    again = layer.attend(torch.ones(2, 2, 1, 8), 0.3)
    expected = dense(torch.ones(2, 2, 1, 8), key[:, :, :293], value[:, :, :293], seen).transpose(1, 2)
    assert torch.allclose(again, expected, atol=1e-5)
    with pytest.raises(ValueError, match="`crop` can take back 64 tokens of a layer with a sliding window of 9"):
        layer.crop(-200)


def test_rows_cannot_change_places() -> None:
    layer, *_ = filled()
    with pytest.raises(ValueError, match="`num_beams` must be 1"):
        layer.reorder_cache(torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="cannot be repeated"):
        layer.batch_repeat_interleave(2)
    with pytest.raises(ValueError, match="cannot be taken out"):
        layer.batch_select_indices(torch.tensor([0]))
