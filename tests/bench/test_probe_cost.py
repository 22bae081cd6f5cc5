"""The probe's benchmark measures what it says, on shapes small enough for a CPU."""

import json

import torch

from headscope.bench.probe import peak_memory, run

TINY_SHAPE = {
    "text_config": {
        "vocab_size": 1536,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
    },
    "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
}


def test_the_time_of_scoring_is_told_beside_that_of_generating() -> None:
    result = json.loads(json.dumps(run(pages=2, device="cpu", commit="abc")))
    time = result["time"]
    assert time["pages"] == 2 and time["tokens_identical"] and time["logits_identical"]
    assert time["added"] == time["score_s"] / time["generate_s"] > 0
    assert result["commit"] == "abc" and result["hardware"]["cpu"] and result["software"]["torch"]


def test_the_memory_measurement_fills_the_prompt_and_scores_every_token() -> None:
    result = peak_memory(torch.device("cpu"), tokens=100, shape=TINY_SHAPE)
    assert 80 <= result["prompt_tokens"] <= 100 and result["answer_tokens"] == 100
    assert result["tokens_identical"] and result["logits_identical"]
