"""The acceptance rule gives the dense model's own distribution, exactly; changed in any way, it does not."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from headscope.speculate import SparseToDense, acceptance
from headscope.speculate.acceptance import Outcomes, outcomes

VOCABULARY, TOKENS = 4, 3
END = 0
Prefix = tuple[int, ...]
Table = Callable[[Prefix], Tensor]
Rule = Callable[[Tensor, Tensor, Tensor], Outcomes]


def table(seed: int, sharp: float = 2.0) -> Table:
    """Give random next-token distributions, float64 [token], one for each prefix; some tokens are impossible."""
    scores = torch.randn(5**4, VOCABULARY, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharp
    scores[scores < -2.0] = -torch.inf
    scores[:, 1] = scores[:, 1].clamp_min(-1.0)
    chances = scores.softmax(-1)
    return lambda prefix: chances[sum((token + 1) * 5**place for place, token in enumerate(prefix)) % len(chances)]


DENSE, DRAFT, RAW = table(0), table(1), table(2)


def plain(end: int | None) -> dict[Prefix, float]:
    """Give the chance of each answer in plain decoding; after an end token nothing follows."""
    chances: dict[Prefix, float] = {}
    for full in itertools.product(range(VOCABULARY), repeat=TOKENS):
        answer = full[: full.index(end) + 1] if end in full else full
        chance = 1.0
        for place, token in enumerate(answer):
            chance *= float(DENSE(answer[:place])[token])
        chances[answer] = chance
    return chances


def blocks(prefix: Prefix, gamma: int, rule: Rule, told: Table) -> Iterator[tuple[float, int, Prefix]]:
    """Yield all that a round may do: (chance, accepted, its tokens). told: what the rule is told of the draft."""
    for proposed in itertools.product(range(VOCABULARY), repeat=gamma):
        drawn = 1.0
        for place, token in enumerate(proposed):
            drawn *= float(DRAFT(prefix + proposed[:place])[token])
        if not drawn:
            continue
        q = torch.stack([told(prefix + proposed[:place]) for place in range(gamma)])[None]
        p = torch.stack([DENSE(prefix + proposed[:place]) for place in range(gamma + 1)])[None]
        keep, follow = rule(torch.tensor([proposed]), q, p)
        stands = 1.0
        for accepted in range(gamma + 1):
            falls = 1 - float(keep[0, accepted]) if accepted < gamma else 1.0
            for token in range(VOCABULARY):
                chance = drawn * stands * falls * float(follow[0, accepted, token])
                if chance:
                    yield chance, accepted, (*proposed[:accepted], token)
            stands *= float(keep[0, accepted]) if accepted < gamma else 1.0


def speculated(
    gamma: int, rule: Rule = outcomes, told: Table = DRAFT, end: int | None = None, late: bool = False
) -> dict[Prefix, float]:
    """Give the chance of each answer in speculative decoding, by enumerating every draft and every decision.

    late: look for end tokens before the block's last token is there.
    """
    chances: dict[Prefix, float] = defaultdict(float)
    waiting: dict[Prefix, float] = {(): 1.0}
    while waiting:
        prefix = min(waiting, key=len)  # nothing leads back to it
        chance = waiting.pop(prefix)
        for of_block, accepted, tokens in blocks(prefix, gamma, rule, told):
            seen = tokens[:accepted] if late else tokens
            answer = (prefix + (tokens[: seen.index(end) + 1] if end in seen else tokens))[:TOKENS]
            if len(answer) == TOKENS or end in seen:
                chances[answer] += chance * of_block
            else:
                waiting[answer] = waiting.get(answer, 0.0) + chance * of_block
    return chances


def distance(found: dict[Prefix, float], expected: dict[Prefix, float]) -> float:
    """Give the total variation."""
    answers = found.keys() | expected.keys()
    return sum(abs(found.get(answer, 0.0) - expected.get(answer, 0.0)) for answer in answers) / 2


@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_joint_distribution_of_three_tokens_is_the_dense_models_own(gamma: int, end: int | None) -> None:
    assert distance(speculated(gamma, end=end), plain(end)) <= 1e-12


def test_a_draft_that_does_not_draw_changes_nothing() -> None:
    p = torch.stack([DENSE(()), DENSE((2,))])[None]
    keep, follow = outcomes(torch.tensor([[2]]), acceptance.one_hot(torch.tensor([[2]]), VOCABULARY).double(), p)
    first = (1 - keep[0, 0]) * follow[0, 0]
    first[2] += keep[0, 0]
    assert torch.allclose(first, DENSE(()), rtol=0, atol=1e-12)


def test_where_nothing_is_proposed_the_dense_model_goes_on_alone() -> None:
    p = torch.stack([DENSE(()), DENSE((2,))])[None]
    for q in (DRAFT(())[None, None], torch.zeros(1, 1, VOCABULARY).double()):
        keep, follow = outcomes(torch.tensor([[-1]]), q, p)
        assert keep.tolist() == [[0.0]] and torch.equal(follow[0, 0], DENSE(()))
    assert acceptance.greedy(torch.tensor([[-1]]), p).accepted.tolist() == [0]


def test_equal_distributions_reject_nothing() -> None:
    p = torch.stack([DENSE(()), DENSE((1,))])[None]
    keep, follow = outcomes(torch.tensor([[1]]), p[:, :1], p)
    assert keep.tolist() == [[1.0]] and bool(follow.isfinite().all())


def unclamped(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    found, residual = outcomes(proposed, draft, dense), (dense[:, :-1] - draft).abs()
    return Outcomes(found.keep, torch.cat([residual / residual.sum(-1, keepdim=True), dense[:, -1:]], dim=1))


def unnormalised(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    residual = (dense[:, :-1] - draft).clamp_min(0)
    return Outcomes(outcomes(proposed, draft, dense).keep, torch.cat([residual, dense[:, -1:]], dim=1))


def bonus_from_the_draft(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    keep, follow = outcomes(proposed, draft, dense)
    return Outcomes(keep, torch.cat([follow[:, :-1], draft[:, -1:]], dim=1))


def shifted(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    return outcomes(proposed, draft, torch.cat([dense[:, 1:], dense[:, -1:]], dim=1))


def takes_any_end(proposed: Tensor, draft: Tensor, dense: Tensor) -> Outcomes:
    keep, follow = outcomes(proposed, draft, dense)
    return Outcomes(keep.masked_fill(proposed == END, 1.0), follow)


@pytest.mark.parametrize("mutant", [unclamped, unnormalised, bonus_from_the_draft, shifted, takes_any_end])
@pytest.mark.parametrize("gamma", [1, 2])
def test_a_changed_rule_is_noticed(gamma: int, mutant: Rule) -> None:
    assert distance(speculated(gamma, mutant, end=END), plain(END)) > 1e-3


def test_draft_chances_from_before_the_processors_are_noticed() -> None:
    assert distance(speculated(2, told=RAW), plain(None)) > 1e-3


def test_end_tokens_looked_for_before_the_bonus_are_noticed() -> None:
    assert distance(speculated(2, end=END, late=True), plain(END)) > 1e-3


def chi_square(counts: Tensor, chances: Tensor) -> float:
    """Give how many standard deviations the statistic lies above its mean; impossible cells must be empty."""
    assert int(counts[chances == 0].sum()) == 0
    there = chances > 0
    expected = chances[there] * counts.sum()
    statistic = float(((counts[there] - expected) ** 2 / expected).sum())
    freedom = int(there.sum()) - 1
    return (statistic - freedom) / (2 * freedom) ** 0.5


def test_100_000_draws_have_the_distribution_of_the_dense_model() -> None:
    draws, chance = 100_000, torch.Generator().manual_seed(5)
    rows = torch.arange(draws)
    pairs = torch.stack([DENSE((first,)) for first in range(VOCABULARY)])
    drafts = torch.stack([DRAFT((first,)) for first in range(VOCABULARY)])
    one = torch.multinomial(DRAFT(()).expand(draws, -1), 1, generator=chance)
    two = torch.multinomial(drafts[one[:, 0]], 1, generator=chance)
    q = torch.stack([DRAFT(()).expand(draws, -1), drafts[one[:, 0]]], dim=1)
    after = torch.stack([torch.stack([DENSE((a, b)) for b in range(VOCABULARY)]) for a in range(VOCABULARY)])
    p = torch.stack([DENSE(()).expand(draws, -1), pairs[one[:, 0]], after[one[:, 0], two[:, 0]]], dim=1)
    found = acceptance.sampled(torch.cat([one, two], dim=1), q, p, chance)
    first, second = found.tokens[:, 0], found.tokens[:, 1].clone()
    short = found.accepted == 0  # these rows need another round for their second token
    again = torch.multinomial(drafts[first], 1, generator=chance)
    more = acceptance.sampled(again, drafts[first][:, None], torch.stack([pairs[first], pairs[first]], 1), chance)
    second[short] = more.tokens[rows[short], 0]
    counts = torch.bincount(first * VOCABULARY + second, minlength=VOCABULARY**2)
    assert chi_square(counts, (DENSE(())[:, None] * pairs).flatten()) < 4
    shuffled = torch.bincount(first * VOCABULARY + second.roll(1), minlength=VOCABULARY**2)
    assert chi_square(shuffled, (DENSE(())[:, None] * pairs).flatten().clamp_min(1e-9)) > 4


@pytest.mark.parametrize("draft", ["sinks_and_recent", "prompt_lookup", "early_exit"])
def test_generation_draws_from_the_processed_distribution(draft: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = LlamaConfig(
            vocab_size=6, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2
        )
        model = LlamaForCausalLM(config).eval()
        for parameter in model.parameters():
            parameter.data.mul_(30 if parameter.ndim == 2 else 1)
        model.generation_config = GenerationConfig(pad_token_id=0)
        rows, ids = 8_000, torch.tensor([[1, 2, 3, 1, 4, 2, 5, 1, 2]])
        settings = {"temperature": 1.7, "top_k": 5, "repetition_penalty": 1.2, "do_sample": True, "max_new_tokens": 3}
        own = {"per_head": 4, "window": 2} if draft == "sinks_and_recent" else {}
        decoder = SparseToDense(draft, gamma=2, **own)
        drawn = model.generate(ids.expand(rows, -1), **settings, custom_generate=decoder)[:, -3:]
        assert decoder.report.acceptance and 0.05 < decoder.report.acceptance < 0.95
        chances = joint(model, ids, settings)
    counts = torch.bincount(drawn @ torch.tensor([36, 6, 1]), minlength=216)
    assert chi_square(counts, chances) < 4


def joint(model: LlamaForCausalLM, ids: Tensor, settings: dict) -> Tensor:
    """Give the chance of every three tokens, by the scores of plain generation after each prefix."""
    one = settings | {"max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True}
    chances = torch.ones(1)
    for place in range(3):
        prefixes = torch.tensor(list(itertools.product(range(6), repeat=place)), dtype=torch.long).view(6**place, place)
        longer = torch.cat([ids.expand(len(prefixes), -1), prefixes], dim=1)
        scores = model.generate(longer, attention_mask=torch.ones_like(longer), **one).scores[0]
        chances = (chances[:, None] * scores.softmax(-1)).flatten()
    return chances
