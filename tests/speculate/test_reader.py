"""The bundled model reads pages with a draft as it does without, and head budgets make the better draft."""

from __future__ import annotations

from typing import Any

import pytest

from headscope.evaluate.acceptance import Asked, _inputs
from headscope.page.image import decode
from headscope.page.source import bundled
from headscope.scores import find_shipped
from headscope.speculate import SparseToDense


@pytest.mark.parametrize(
    ("draft", "settings"),
    [
        ("head_budget", {"scores": find_shipped("reader-22m"), "per_head": 48, "window": 16}),
        ("text_guided", {"per_head": 48}),
        ("prompt_lookup", {}),
    ],
)
def test_a_batch_of_pages_is_read_with_the_same_tokens(
    reader: tuple[Any, Any], draft: str, settings: dict[str, Any]
) -> None:
    pages = sorted(bundled("evaluation"), key=lambda page: len(page.text or ""))[:3]
    asked = [
        Asked((decode(page.source),), question)
        for page, question in zip(pages, ["Read the text.", "Read line 2.", "Read the text."], strict=True)
    ]
    model, processor = reader
    inputs = _inputs(model, processor, asked)
    plain = model.generate(**inputs, do_sample=False, max_new_tokens=24)
    decoder = SparseToDense(draft, gamma=6, **settings)
    found = model.generate(**inputs, do_sample=False, max_new_tokens=24, custom_generate=decoder)
    assert found.tolist() == plain.tolist()
    if draft == "head_budget":
        assert decoder.report.acceptance and decoder.report.acceptance > 0.7
