"""Pieces: the characters that each token of an answer stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscope.probing.align import Answer, Span

UNFINISHED = "\ufffd"  # what a decoder shows for bytes that make no character yet


def decode_answer(tokenizer: Any, ids: Sequence[int], *, raw_pieces: bool = False) -> Answer:
    """Decode an answer as a whole and give each token its characters.

    Bytes are joined first: tokens that share a character share its span. Special tokens have an empty span. raw_pieces:
    keep the vocabulary's own spelling as pieces (the published rule does so for LLaVA), else decode each token alone.
    """
    text, spans = "", []
    special = set(tokenizer.all_special_ids)
    window = 0  # decoding starts here, far enough back for decoders that strip a leading space
    pending = 0  # tokens from here on have no finished character yet
    for stop in range(1, len(ids) + 1):
        if ids[stop - 1] in special and pending == stop - 1:
            spans.append((len(text), len(text)))
            pending = stop
            continue
        known, longer = _decode(tokenizer, ids[window:pending]), _decode(tokenizer, ids[window:stop])
        if longer.endswith(UNFINISHED) and stop < len(ids):
            continue
        spans += _share(len(text), longer[len(known) :], stop - pending)
        text += longer[len(known) :]
        window, pending = pending, stop
    return Answer(text, _pieces(tokenizer, ids, raw_pieces), tuple(spans))


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _share(start: int, added: str, tokens: int) -> list[Span]:
    """Give the same stretch of new characters to all tokens that made it together."""
    return [(start, start + len(added))] * tokens


def _pieces(tokenizer: Any, ids: Sequence[int], raw: bool) -> tuple[str, ...]:
    if raw:
        return tuple(piece or "" for piece in tokenizer.convert_ids_to_tokens(list(ids)))
    return tuple(_decode(tokenizer, [token]) for token in ids)
