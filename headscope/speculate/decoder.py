"""SparseToDense: lossless speculative decoding as transformers' `custom_generate` takes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, StoppingCriteriaList

from headscope.attach.entry import CACHE_NAMES
from headscope.attach.step import Policy
from headscope.families import attention_modules
from headscope.runtime import Forward, StockForward
from headscope.speculate.drafting import GraphedDrafting
from headscope.speculate.drafts import Draft, EarlyExit, Kept, Lookup, check_settings, find_draft, nothing_kept
from headscope.speculate.gamma import MOST, Auto, Fixed, accounted_cost
from headscope.speculate.graphed import GraphedRounds, choose_forward, why_not
from headscope.speculate.handback import Held, hand_back
from headscope.speculate.offload import Offload, check_offload, offloading
from headscope.speculate.prefill import Filled, prefill
from headscope.speculate.processors import Processors
from headscope.speculate.refresh import Refresh, check_refresh, choose_anew
from headscope.speculate.refusals import check_generation
from headscope.speculate.report import Clock, Report
from headscope.speculate.rounds import Played, Rounds
from headscope.speculate.state import State
from headscope.speculate.stops import Stops, with_stop_strings

AWAY = "the full cache is in the CPU's memory"


class SparseToDense:
    """Give it as `model.generate(**inputs, custom_generate=SparseToDense(...))`: the output is as without it, sooner.

    A draft on a small part of the KV cache proposes tokens, and one dense pass verifies them (StD; Leviathan et al.
    2023). Greedy decoding gives the same tokens, sampling the same distribution.

    draft: head_budget, text_guided, observation_window, sinks_and_recent, early_exit, prompt_lookup, or a function like
    those of `headscope.speculate.drafts`. settings: the draft's own, such as scores, per_head, window, layers, ngram.
    gamma: tokens that are drafted in a round, 1 to 15, or "auto": chosen for each round, 0 (plain decoding) included.
    streamer, tokenizer, stop_strings: as for `generate`, which hands them to no custom callable.
    refresh: choose the draft's prompt tokens anew, with the verified tokens as observers, every so many rounds, or
    "falling": when fewer tokens stand than did before; None: never.
    forward: model -> Forward, what runs the steps; None: fused kernels on a GPU where the model's stack is like
    Llama's, else the model's own forward. graph: run rounds as CUDA graphs where that can be; the report says which.
    offload: keep the full cache in the CPU's memory, and bring it to the GPU layer by layer while the layers before it
    compute; the draft's cache stays on the GPU. resident: layers of it, the first ones, that stay there too; those that
    early_exit runs always do. report: of the last call.
    """

    def __init__(
        self,
        draft: str | Callable[..., Draft] = "head_budget",
        *,
        gamma: int | str = 9,
        streamer: Any = None,
        tokenizer: Any = None,
        stop_strings: str | Sequence[str] | None = None,
        refresh: int | str | None = None,
        forward: Callable[[Any], Forward] | None = None,
        graph: bool = True,
        offload: bool = False,
        resident: int = 0,
        **settings: Any,
    ) -> None:
        self.draft = find_draft(draft)
        check_settings(self.draft, settings)
        check_refresh(refresh)
        check_offload(offload, resident)
        if gamma != "auto" and (isinstance(gamma, bool) or not isinstance(gamma, int) or not 1 <= gamma <= MOST):
            raise ValueError(f'`gamma` must be a whole number from 1 to {MOST} or "auto", got {gamma!r}')
        if stop_strings is not None and tokenizer is None:
            raise ValueError("`tokenizer` is required with `stop_strings`; give the model's")
        self.gamma, self.refresh, self.settings = gamma, refresh, settings
        self.streamer, self.tokenizer, self.stop_strings = streamer, tokenizer, stop_strings
        self.make_forward, self.graph = forward or choose_forward, graph
        self.offload, self.resident = offload, resident
        self.report = Report()

    @torch.no_grad()
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """Decode; transformers calls this."""
        check_generation(model, input_ids, generation_config, stopping_criteria)
        criteria = with_stop_strings(stopping_criteria, self.stop_strings, self.tokenizer)
        draft = self.draft(model, **self.settings)
        if self.refresh is not None and not isinstance(draft, Kept):
            raise ValueError("`refresh` chooses a draft's prompt tokens anew, and this draft keeps none; leave it out")
        name = next((name for name in CACHE_NAMES if model_kwargs.get(name) is not None), CACHE_NAMES[0])
        held = Held.of(model_kwargs.get(name), name)
        if self.streamer is not None:
            self.streamer.put(input_ids.cpu())
        pad = generation_config._pad_token_tensor
        stops = Stops(criteria, self.streamer, input_ids.shape[1], len(input_ids), None if pad is None else int(pad))
        with self._offloaded(model, draft) as offload:
            given = model_kwargs, draft, stops, held, logits_processor, generation_config, offload
            ids = self._decode(model, input_ids, *given)
        if self.streamer is not None:
            self.streamer.end()
        return as_output(ids, held.cache, generation_config)

    def _offloaded(self, model: Any, draft: Draft) -> AbstractContextManager[Offload | None]:
        """Give what holds the full cache in the CPU's memory inside a block; None: nothing does."""
        if not self.offload:
            return nullcontext()
        resident = max(self.resident, draft.layers if isinstance(draft, EarlyExit) else 0)
        return offloading(next(model.parameters()).device, len(attention_modules(model)), resident)

    def _decode(
        self,
        model: Any,
        input_ids: Tensor,
        kwargs: dict[str, Any],
        draft: Draft,
        stops: Stops,
        held: Held,
        processors: LogitsProcessorList,
        config: Any,
        offload: Offload | None,
    ) -> Tensor:
        """Read the prompt and play rounds: int64 [row, token]."""
        start = time.perf_counter()
        own = isinstance(draft, Kept)
        policy = draft.policy if isinstance(draft, Kept) else nothing_kept(model)
        room = stops.longest - input_ids.shape[1] + MOST + 1
        filled = prefill(model, input_ids, config, kwargs, policy, own, room, offload)
        state = begin(input_ids, filled, stops)
        forward, found = self.make_forward(model), Processors(processors)
        reason = why_not(forward, draft, found, state.ids.device) if self.graph else "no graph: `graph` is false"
        kind, path = _kind(reason, offload is not None)
        whole = kind is GraphedRounds
        self.report = Report(draft=_name(self.draft), gamma=self.gamma, graphed=whole, path=path)
        rounds = kind(state, draft, forward, found, stops, config.do_sample, self.report, Clock(state.ids.device))
        rounds.begin(filled.logits)
        self.report.prompt_s = time.perf_counter() - start
        self._play(model, rounds, filled, policy)
        self._note(rounds, input_ids.shape[1], time.perf_counter() - start)
        self.report.staged_bytes = 0 if offload is None else offload.staged_bytes
        if held.cache is not None and (
            config.return_dict_in_generate or getattr(held.cache, "_is_user_defined", False)
        ):
            hand_back(rounds, filled, held)
        return state.ids[:, : stops.length].to(input_ids.device)

    def _play(self, model: Any, rounds: Rounds, filled: Filled, policy: Policy) -> None:
        chooser, refresh = self._chooser(model, rounds, filled), Refresh(self.refresh)
        modules, observer = attention_modules(model), StockForward(model)
        while not rounds.stops.done:
            gamma, due, before = chooser.choose(rounds.left - 1), refresh.due, list(rounds.lengths)
            played = self.play(rounds, gamma, observer if due else None)
            chooser.learn(played.gamma, played.accepted, played.draft_s, played.verify_s)
            if due and not rounds.stops.done:
                counts = [now - then for now, then in zip(rounds.lengths, before, strict=True)]
                choose_anew(rounds, filled, policy, modules, counts)
                self.report.refreshes += 1
            refresh.note(played, due)

    def play(self, rounds: Rounds, gamma: int, observer: StockForward | None = None) -> Played:
        """Play a round; a subclass may do so in another way."""
        return rounds.play(gamma, observer)

    def _chooser(self, model: Any, rounds: Rounds, filled: Filled) -> Fixed | Auto:
        if self.gamma != "auto":
            return Fixed(int(self.gamma))
        if isinstance(rounds.draft, Lookup):
            return Auto(0.0)
        if isinstance(rounds.draft, EarlyExit):
            return Auto(rounds.draft.layers / len(filled.whole))
        assert filled.kept is not None
        kept = sum(int(layer.lengths.sum()) for layer in filled.kept) // (
            len(filled.kept) * filled.kept[0].lengths.numel()
        )
        return Auto(accounted_cost(model.config, filled.total, kept, rounds.state.rows, model.dtype))

    def _note(self, rounds: Rounds, prompt: int, seconds: float) -> None:
        report = self.report
        report.emitted = sum(min(length, rounds.stops.length) - prompt for length in rounds.lengths)
        report.rest_s = seconds - report.prompt_s - report.draft_s - report.verify_s
        report.whole_bytes = sum(layer.kv_bytes for layer in rounds.state.whole)
        report.kept_bytes = sum(layer.kv_bytes for layer in rounds.state.kept or ())


def begin(input_ids: Tensor, filled: Filled, stops: Stops) -> State:
    """Give the state after the prompt; the token that follows it is still to come."""
    device = filled.logits.device
    rows, prompt = input_ids.shape
    slack = torch.full((rows, stops.longest + MOST + 1 - prompt), stops.pad, device=device)
    offset = filled.next_position.to(device) - prompt
    return State(
        ids=torch.cat([input_ids.to(device), slack], dim=1),
        lengths=torch.full((rows,), prompt, device=device),
        offset=offset,
        frozen=torch.zeros(rows, dtype=torch.bool, device=device),
        whole=filled.whole,
        kept=filled.kept,
    )


def as_output(ids: Tensor, cache: Any, config: Any) -> Any:
    """Give what `generate` gives."""
    if not config.return_dict_in_generate:
        return ids
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    name = next(name for name in CACHE_NAMES if name in GenerateDecoderOnlyOutput.__dataclass_fields__)
    output: Any = GenerateDecoderOnlyOutput
    return output(sequences=ids, **{name: cache})


def _kind(reason: str | None, offloaded: bool) -> tuple[type[Rounds], str]:
    """Choose the rounds, and say what they are. reason: what prevents graphs, if anything does."""
    if reason:
        return Rounds, f"{reason}; {AWAY}" if offloaded else reason
    return (GraphedDrafting, f"drafting graphed, verification not: {AWAY}") if offloaded else (GraphedRounds, "graphed")


def _name(function: Any) -> str:
    function = getattr(function, "func", function)
    return str(getattr(function, "__name__", type(function).__name__))
