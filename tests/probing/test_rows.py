"""Attention rows are the model's own, formed on the side (CASES B30, B31, B33)."""

from typing import Any

import pytest
import torch

from headscope.families import language_model
from headscope.probing import rows as rows_module
from headscope.probing.rows import form_rows, watch_rows


def text_arguments(model: Any, tokens: int, seed: int = 0) -> dict[str, Any]:
    ids = torch.randint(7, 1500, (1, tokens), generator=torch.Generator().manual_seed(seed))
    decoder = language_model(model)
    return {"inputs_embeds": decoder.get_input_embeddings()(ids), "attention_mask": torch.ones_like(ids)}


def collected(decoder: Any, arguments: dict[str, Any], positions: list[int]) -> torch.Tensor:
    """All rows as one tensor [layer, head, row, key]."""
    parts: dict[int, list[torch.Tensor]] = {}
    watch_rows(
        decoder, arguments, torch.tensor(positions), lambda layer, _, rows: parts.setdefault(layer, []).append(rows)
    )
    return torch.stack([torch.cat(parts[layer], dim=1) for layer in sorted(parts)])


@pytest.fixture
def eager_attention(reader: tuple[Any, Any]) -> torch.Tensor:
    """Attention of the stock eager path over 17 tokens: [layer, head, query, key]."""
    decoder = language_model(reader[0])
    before = decoder.config._attn_implementation
    decoder.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return torch.cat(decoder(**text_arguments(reader[0], 17), output_attentions=True).attentions)
    finally:
        decoder.set_attn_implementation(before)


def test_rows_equal_those_of_the_stock_eager_attention(reader: tuple[Any, Any], eager_attention: torch.Tensor) -> None:
    rows = collected(language_model(reader[0]), text_arguments(reader[0], 17), list(range(17)))
    torch.testing.assert_close(rows, eager_attention, atol=1e-5, rtol=0)


def test_rows_are_causal_to_the_bit_and_sum_to_one(reader: tuple[Any, Any]) -> None:
    rows = collected(language_model(reader[0]), text_arguments(reader[0], 17), list(range(17)))
    assert rows.triu(diagonal=1).count_nonzero() == 0
    torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]))


def test_only_the_asked_rows_are_formed_and_chunks_join_seamlessly(
    reader: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, arguments = language_model(reader[0]), text_arguments(reader[0], 17)
    whole = collected(decoder, arguments, [3, 9, 16])
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 4 * 12 * 17)
    seen: list[tuple[int, tuple[int, ...]]] = []
    watch_rows(decoder, arguments, torch.tensor([3, 9, 16]), lambda _, first, rows: seen.append((first, rows.shape)))
    assert seen[:3] == [(0, (12, 1, 17)), (1, (12, 1, 17)), (2, (12, 1, 17))]
    torch.testing.assert_close(collected(decoder, arguments, [3, 9, 16]), whole)


def test_the_models_attention_is_restored_also_after_an_error(reader: tuple[Any, Any]) -> None:
    decoder = language_model(reader[0])
    vision = reader[0].model.visual.config._attn_implementation

    def fail(*_: Any) -> None:
        assert reader[0].model.visual.config._attn_implementation == vision
        raise RuntimeError("seen")

    with pytest.raises(RuntimeError, match="seen"):
        watch_rows(decoder, text_arguments(reader[0], 5), torch.tensor([4]), fail)
    assert decoder.config._attn_implementation == "sdpa"


def test_a_batch_of_several_is_refused(reader: tuple[Any, Any]) -> None:
    arguments = text_arguments(reader[0], 5)
    arguments["inputs_embeds"] = arguments["inputs_embeds"].expand(2, -1, -1)
    with pytest.raises(ValueError, match="one sequence, got 2; probe them one by one"):
        watch_rows(language_model(reader[0]), arguments, torch.tensor([4]), lambda *_: None)


def test_a_sliding_window_hides_older_keys() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(4, 9, 8, generator=generator), torch.randn(2, 9, 8, generator=generator)
    ((_, rows),) = form_rows(query, key, torch.tensor([2, 8]), 8**-0.5, window=3)
    assert (rows[0] > 0).int().tolist() == [[1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 1]]


def test_query_heads_read_the_kv_head_of_their_contiguous_group() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(4, 5, 8, generator=generator), torch.randn(2, 5, 8, generator=generator)
    ((_, rows),) = form_rows(query, key, torch.tensor([4]), 1.0)
    repeated = torch.einsum("hd,hkd->hk", query[:, 4], key.repeat_interleave(2, dim=0)).softmax(-1)
    torch.testing.assert_close(rows[:, 0], repeated)
