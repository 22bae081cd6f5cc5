"""With the full cache in the CPU's memory the tokens are the same, and the device holds a few layers at a time."""

from __future__ import annotations

import gc
import random
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import headscope as hs
from headscope.cache import host as memory
from headscope.cache.host import Host
from headscope.cache.segments import Segments
from headscope.fused import fuse
from headscope.runtime import stock
from headscope.speculate import Lookup, SparseToDense, decoder, drafting, offload, prefill
from headscope.speculate.drafting import Drafted, GraphedDrafting
from headscope.speculate.offload import Buffer, Offload, roomy
from headscope.speculate.offloaded import OffloadedSegments
from headscope.speculate.rounds import Rounds
from tests.attach.models import CACHE, MODELS, TEXT, picture_inputs, tokens
from tests.runtime.test_stock import LENGTHS as TWO
from tests.runtime.test_stock import prompt_of
from tests.speculate.prompts import LENGTHS, SETTINGS, padded, speculate
from tests.speculate.test_lossless import MANY, PENALTIES, Checked

NEW = 13
CPU = torch.device("cpu")


class Lazy(Offload):
    """Copies as late as the waits on the device allow; a buffer that nobody waited for holds NaN."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.late: list[tuple[Buffer, OffloadedSegments, bool]] = []

    def _copy(self, buffer: Buffer, out: bool) -> None:
        assert buffer.layer is not None
        if not out:
            self._await(buffer)  # copies are in line with each other, so one out of the buffer is done
            buffer.key.fill_(torch.nan), buffer.value.fill_(torch.nan)
        self.late.append((buffer, self.segments[buffer.layer], out))

    def _await(self, buffer: Buffer) -> None:
        while any(buffer is other for other, *_ in self.late):
            self._next()

    def _next(self) -> None:
        buffer, segments, out = self.late.pop(0)
        for here, there in zip(buffer.part(segments.host.slots), (segments.host.key, segments.host.value), strict=True):
            (there if out else here).copy_(here if out else there)

    def forget(self, layer: int) -> None:
        while self.late:
            self._next()
        super().forget(layer)


@pytest.fixture(params=[Offload, Lazy])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Offload]:
    monkeypatch.setattr(offload, "Offload", request.param)
    return request.param


def offloaded(layers: list[Segments], made: Offload) -> list[Any]:
    """Give the same segments in the CPU's memory."""
    found = []
    for segments in layers:
        own = Host(*segments.key.shape, segments.key.dtype, CPU)
        own.key.copy_(segments.key), own.value.copy_(segments.value)
        found.append(made.adopt(own, segments.starts.clone(), segments.lengths.clone(), segments.room))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_as_it_does_without(name: str) -> None:
    model, inputs = MODELS[name]()
    plain = model.generate(**inputs, max_new_tokens=NEW)
    own = speculate(model, "head_budget", gamma=4, offload=True)
    assert model.generate(**inputs, max_new_tokens=NEW, custom_generate=own).tolist() == plain.tolist()
    assert own.report.staged_bytes > 0 and own.report.path.endswith("in the CPU's memory")


@pytest.mark.parametrize("draft", SETTINGS)
def test_every_draft_answers_as_the_model_does(draft: str, kind: type[Offload]) -> None:
    for name in ("llama", "qwen2_sliding"):
        model, inputs = MODELS[name]()
        plain = model.generate(**inputs, max_new_tokens=NEW)
        own = speculate(model, draft, gamma=3, offload=True)
        assert model.generate(**inputs, max_new_tokens=NEW, custom_generate=own).tolist() == plain.tolist()


def test_the_bundled_model_answers_as_it_does_without(reader: tuple[Any, Any]) -> None:
    model, processor = reader
    inputs = picture_inputs(processor, "Read the text.")
    plain = model.generate(**inputs, max_new_tokens=24)
    found = hs.generate(
        model, inputs, draft="observation_window", per_head=40, window=8, gamma=4, offload=True, max_new_tokens=24
    )
    assert found.tolist() == plain.tolist()


@pytest.mark.parametrize("name", ["qwen3", "qwen2_vl"])
def test_fused_steps_answer_as_the_model_does(name: str, kind: type[Offload]) -> None:
    model, inputs = MODELS[name]()
    plain = model.generate(**inputs, max_new_tokens=NEW)
    for draft in ("observation_window", "early_exit"):
        own = speculate(model, draft, gamma=3, offload=True, forward=fuse)
        assert model.generate(**inputs, max_new_tokens=NEW, custom_generate=own).tolist() == plain.tolist()


@pytest.mark.parametrize("gamma", [1, 6, "auto"])
@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_padded_batches_with_penalties_and_end_tokens(name: str, gamma: int | str) -> None:
    model, _ = MODELS[name]()
    inputs = padded(LENGTHS)
    for settings in (PENALTIES, {"eos_token_id": MANY}):
        plain = model.generate(**inputs, max_new_tokens=20, **settings)
        own = speculate(model, "observation_window", gamma, offload=True)
        found = model.generate(**inputs, max_new_tokens=20, **settings, custom_generate=own)
        assert found.tolist() == plain.tolist()


def test_plain_decoding_needs_no_draft_token(kind: type[Offload], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder.Auto, "choose", lambda self, most: 0)
    model, inputs = MODELS["llama"]()
    plain = model.generate(**inputs, max_new_tokens=NEW)
    own = speculate(model, "observation_window", "auto", offload=True)
    assert model.generate(**inputs, max_new_tokens=NEW, custom_generate=own).tolist() == plain.tolist()
    assert set(own.report.gammas) == {0}


class HostChecked(Checked):
    """Holds the CPU's copy of every layer, and what the device has of it, to a fresh dense forward pass."""

    def __call__(self, rounds: Rounds) -> None:
        whole: Any = rounds.state.whole
        made: Any = whole[-1].offload
        made.forget(-1)  # waits until no copy runs
        for layer in made.segments:
            assert not layer.key.numel() and not layer.value.numel()
        for buffer in made.buffers:
            self._hold(made, buffer)
        seen = [SimpleNamespace(**vars(each) | self._own(each)) for each in whole]
        state = SimpleNamespace(**vars(rounds.state) | {"whole": seen, "rows": rounds.state.rows})
        super().__call__(SimpleNamespace(state=state))  # type: ignore[arg-type]

    def _own(self, layer: Any) -> dict[str, Tensor]:
        own = layer.host if isinstance(layer, OffloadedSegments) else layer
        return {"key": own.key, "value": own.value}

    def _hold(self, made: Any, buffer: Buffer) -> None:
        """A buffer holds what the CPU's memory holds, or is about to."""
        layer = made.segments[buffer.layer]
        for start, length in zip(layer.starts.flatten().tolist(), layer.lengths.flatten().tolist(), strict=True):
            here = slice(start, start + length)
            assert torch.equal(buffer.key[here], layer.host.key[here])
            assert torch.equal(buffer.value[here], layer.host.value[here])


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that has every round of a generation checked."""

    def watch(model: Any, inputs: dict[str, Any]) -> HostChecked:
        check, play = HostChecked(model, inputs), Rounds.play

        def playing(self: Rounds, *args: Any) -> Any:
            played = play(self, *args)
            check(self)
            return played

        monkeypatch.setattr(Rounds, "play", playing)
        return check

    return watch


@pytest.mark.parametrize("name", ["llama", "qwen2_vl"])
@pytest.mark.parametrize("resident", [0, 1])
def test_after_every_round_the_cpus_copy_is_that_of_a_fresh_prefill(
    name: str, resident: int, kind: type[Offload], checked: Any
) -> None:
    model, inputs = MODELS[name]()
    inputs = padded(LENGTHS[:3]) if name == "llama" else inputs
    check = checked(model, inputs)
    own = speculate(model, "observation_window", 4, offload=True, resident=resident)
    model.generate(**inputs, max_new_tokens=9, custom_generate=own)
    assert check.rounds >= 2


@pytest.mark.parametrize("rejected", range(6))
def test_rejected_tokens_leave_nothing(rejected: int, kind: type[Offload], checked: Any) -> None:
    model, inputs = MODELS["llama"]()
    plain = model.generate(**inputs, max_new_tokens=20)

    def right_until(_model: Any) -> Lookup:
        def find(ids: Tensor, lengths: Tensor, gamma: int) -> Tensor:
            at = int(lengths[0])
            proposed = torch.nn.functional.pad(plain[:, at : at + gamma], (0, gamma))[:, :gamma].clone()
            proposed[:, gamma - rejected :] = (proposed[:, gamma - rejected :] + 1) % 97
            return proposed

        return Lookup(find)

    check = checked(model, inputs)
    own = SparseToDense(right_until, gamma=5, offload=True)
    assert model.generate(**inputs, max_new_tokens=20, custom_generate=own).tolist() == plain.tolist()
    assert check.rounds >= 2 and own.report.lengths[5 - rejected] >= 1


@pytest.mark.parametrize("room", [1, 4])
def test_caches_that_move_hold_the_same(
    room: int, kind: type[Offload], checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "LEAST", room)
    monkeypatch.setattr(prefill, "ROOM", room)
    from headscope.speculate import state

    monkeypatch.setattr(state, "GROWTH", 2)
    model, _ = MODELS["llama"]()
    inputs = padded(LENGTHS[:3])
    plain = model.generate(**inputs, max_new_tokens=20)
    check = checked(model, inputs)
    own = speculate(model, "observation_window", 5, offload=True)
    assert model.generate(**inputs, max_new_tokens=20, custom_generate=own).tolist() == plain.tolist()
    assert check.rounds >= 2


@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_choosing_the_drafts_tokens_anew_changes_no_token(name: str, kind: type[Offload]) -> None:
    model, inputs = MODELS[name]()
    plain = model.generate(**inputs, max_new_tokens=20)
    own = speculate(model, "head_budget", 3, refresh=2, offload=True)
    assert model.generate(**inputs, max_new_tokens=20, custom_generate=own).tolist() == plain.tolist()
    assert own.report.refreshes > 0


@pytest.mark.parametrize(
    ("name", "draft"), [("llama", "early_exit"), ("qwen2_vl", "head_budget"), ("mistral_sliding", "head_budget")]
)
def test_several_turns_on_the_callers_own_cache(name: str, draft: str, kind: type[Offload]) -> None:
    model, inputs = MODELS[name]()
    more = tokens(5, seed=9)

    def turns(**own: Any) -> list[Any]:
        cache, ids, kept = DynamicCache(config=model.config), dict(inputs), []
        for _ in range(3):
            out = model.generate(**ids, max_new_tokens=7, **{CACHE: cache}, **own)
            kept += [out.tolist(), cache.get_seq_length()]
            ids = {"input_ids": torch.cat([out, more], dim=1)}
        return kept

    assert turns(custom_generate=speculate(model, draft, 3, offload=True)) == turns()


@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_a_callers_cache_holds_what_it_does_without(name: str, kind: type[Offload]) -> None:
    model, _ = MODELS[name]()
    inputs, caches = padded(LENGTHS[:3]), []
    for away in (False, True):
        own = speculate(model, offload=away)
        out = model.generate(
            **inputs, max_new_tokens=NEW, eos_token_id=MANY, return_dict_in_generate=True, custom_generate=own
        )
        caches.append(out[CACHE])
    for one, other in zip(*(cache.layers for cache in caches), strict=True):
        assert torch.equal(one.keys, other.keys) and torch.equal(one.values, other.values)


@pytest.mark.parametrize(("name", "size"), [("llama", 1), ("llama", 16), ("mistral_sliding", 7)])
def test_a_prompt_in_pieces_waits_in_the_cpus_memory(
    name: str, size: int, kind: type[Offload], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.speculate.parking import Parking

    places: list[set[int]] = []
    put = Parking.put

    def putting(self: Parking, *given: Any) -> Any:
        parked = put(self, *given)
        assert self.host is not None
        places.append({each.untyped_storage().data_ptr() for each in (self.host.key, self.host.value)})
        assert {each.untyped_storage().data_ptr() for each in parked} == places[-1]
        return parked

    monkeypatch.setattr(Parking, "put", putting)
    model, _ = MODELS[name]()
    inputs = padded((40, 23))
    plain = model.generate(**inputs, max_new_tokens=NEW)
    own = speculate(model, offload=True)
    found = model.generate(**inputs, max_new_tokens=NEW, prefill_chunk_size=size, custom_generate=own)
    assert found.tolist() == plain.tolist()
    pieces = -(-40 // size)
    assert len(places) == 3 * (pieces - 1)


def device_tensors(least: int) -> int:
    """Count the pieces of memory of at least so many bytes that tensors lie in, the CPU's copy left out."""
    away, found = set(), set()
    for each in gc.get_objects():
        if type(each) is Host:
            away |= {own.untyped_storage().data_ptr() for own in (each.key, each.value)}
        elif type(each) is Tensor and each.untyped_storage().nbytes() >= least:
            found.add(each.untyped_storage().data_ptr())
    return len(found - away)


def hosts() -> int:
    return sum(type(each) is Host for each in gc.get_objects())


@pytest.mark.parametrize("pieces", [None, 150])
def test_what_the_device_holds_does_not_grow_with_the_layers(
    pieces: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {} if pieces is None else {"prefill_chunk_size": pieces}
    few, many = (most_device_tensors(layers, True, more, monkeypatch) for layers in (3, 7))
    assert few == many
    if pieces is None:
        few, many = (most_device_tensors(layers, False, more, monkeypatch) for layers in (3, 7))
        assert many >= few + 8  # what is counted here does count the cache


def most_device_tensors(layers: int, away: bool, more: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count what a generation holds of layers' sizes at most: when a prompt's first and last layer is packed, then."""
    model, least, counts = many_layers(layers), 350 * 2 * 16 * 4, []
    finish, play = prefill.IntakeStep.finish, Rounds.play

    def finishing(self: Any, layer: Any, index: int, *given: Any) -> None:
        finish(self, layer, index, *given)
        if index == layers - 1:
            counts.append(device_tensors(least))

    def playing(self: Rounds, *given: Any) -> Any:
        counts.append(device_tensors(least))
        return play(self, *given)

    gc.collect()
    before = device_tensors(least)
    with monkeypatch.context() as patch:
        patch.setattr(prefill.IntakeStep, "finish", finishing)
        patch.setattr(Rounds, "play", playing)
        own = speculate(model, "sinks_and_recent", 3, offload=away)
        model.generate(tokens(400), max_new_tokens=2, custom_generate=own, **more)
    return max(counts) - before


def many_layers(layers: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(**{**TEXT, "num_hidden_layers": layers, "hidden_size": 64, "intermediate_size": 32})
        model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.parametrize("kept", SETTINGS)
def test_never_more_buffers_than_are_said(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most = 0
    grow = Offload._grow

    def growing(self: Offload, buffer: Buffer, own: Host) -> None:
        nonlocal most
        grow(self, buffer, own)
        alive.add(buffer.key)
        most = max(most, len(alive))

    monkeypatch.setattr(Offload, "_grow", growing)
    monkeypatch.setattr(offload, "LEAST", 2)  # so that caches move, and buffers grow
    model = many_layers(6)
    own = speculate(model, kept, 3, offload=True)
    model.generate(tokens(40), max_new_tokens=30, custom_generate=own)
    assert most == offload.BUFFERS and not alive


def test_a_second_prompt_finds_no_trace_of_the_first() -> None:
    model, inputs = MODELS["qwen2_vl"]()
    other = {"input_ids": tokens(30, seed=4)}
    plain = model.generate(**other, max_new_tokens=NEW).tolist()
    own = speculate(model, offload=True)
    gc.collect()
    before = hosts()
    gc.disable()
    try:
        model.generate(**inputs, max_new_tokens=NEW, custom_generate=own)
        assert hosts() == before  # memory is let go at once, not when someone collects it
    finally:
        gc.enable()
    assert model.generate(**other, max_new_tokens=NEW, custom_generate=own).tolist() == plain
    assert model.generate(**other, max_new_tokens=NEW).tolist() == plain


@pytest.mark.parametrize("most", [1, 2, 3, 5])
@pytest.mark.parametrize("made", [Offload, Lazy])
def test_layers_may_be_entered_in_any_order(most: int, made: type[Offload]) -> None:
    chance = random.Random(most)
    plain = [drawn(index) for index in range(4)]
    own = made(CPU, 4, buffers=most)
    away = offloaded(plain, own)
    for _ in range(60):
        index, new = chance.randrange(4), chance.randrange(3)
        key, value = torch.randn(2, 2, 2, new, 8)
        away[index].enter()
        if new:
            plain[index].append(key, value)
            away[index].append(key, value)
        for name in ("key", "value"):
            assert torch.equal(valid(away[index], name), valid(plain[index], name))
        away[index].leave(new)
        if new and chance.random() < 0.5:
            assert all(map(torch.equal, away[index].newest(new), plain[index].newest(new)))
            back = chance.randrange(new + 1)
            for segments in (plain[index], away[index]):
                segments.lengths -= back
        assert len(own.buffers) <= most


def drawn(seed: int) -> Segments:
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[5, 3], [4, 1]], dtype=torch.int32)
    key, value = torch.randn(2, 2, 2, 6, 8, generator=chance)
    places = torch.cat([torch.arange(length) for length in lengths.flatten().tolist()])
    return Segments.of(key, value, places, lengths, 8)


def valid(segments: Segments, name: str) -> Tensor:
    pairs = zip(segments.starts.flatten().tolist(), segments.lengths.flatten().tolist(), strict=True)
    return torch.cat([getattr(segments, name)[start : start + length] for start, length in pairs])


@pytest.mark.parametrize("made", [Offload, Lazy])
def test_a_pass_in_order_copies_each_layer_once_and_ahead(made: type[Offload], monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int | None] = []
    copy = made._copy

    def copying(self: Offload, buffer: Buffer, out: bool) -> None:
        copies.append(buffer.layer)
        copy(self, buffer, out)

    monkeypatch.setattr(made, "_copy", copying)
    for most, expected in ((1, 1), (2, 2), (3, 3)):
        copies.clear()
        away = offloaded([drawn(index) for index in range(5)], made(CPU, 5, buffers=most))
        for turn in range(3):
            for index, segments in enumerate(away):
                segments.enter()
                at = turn * 5 + index
                assert copies == [place % 5 for place in range(at + expected)]
                segments.leave(0)
                assert copies == [place % 5 for place in range(at + 1 + expected)]
    copies.clear()
    away = offloaded([drawn(index) for index in range(3)], made(CPU, 3, buffers=3))
    for segments in away * 3:
        segments.enter()
        segments.leave(0)
    assert copies == [0, 1, 2]  # with room for all of them, that was all


@pytest.mark.parametrize("name", ["llama", "mistral_sliding"])
def test_the_stock_forward_sees_to_room_itself(name: str) -> None:
    model, _ = MODELS[name]()
    plain, _ids = prompt_of(model)
    own = Offload(CPU, len(plain))
    away = []
    for segments in prompt_of(model)[0]:
        there = Host(*segments.key.shape, segments.key.dtype, CPU)
        there.key.copy_(segments.key), there.value.copy_(segments.value)
        windowed = hasattr(segments, "window")
        made = own.adopt(there, segments.starts, segments.lengths, segments.room, windowed)
        for field in ("window", "prompt", "kept", "places") if windowed else ():
            setattr(made, field, getattr(segments, field))
        away.append(made)
    step, places = stock(model), torch.tensor(TWO)[:, None]
    for turn in range(12):
        ids = tokens(9, seed=turn, rows=2)
        given = ids, places + turn * 9 + torch.arange(9)
        assert torch.equal(step(*given, away), step(*given, plain))


class Rerun(GraphedDrafting):
    """Runs anew what a graph would replay, where there is no GPU."""

    made = 0

    def _capture_draft(self, gamma: int) -> Drafted:
        Rerun.made += 1
        with self._unchanged():
            proposal = Rounds.propose(self, gamma)

        def replay() -> None:
            with self._unchanged():  # a replay changes nothing on the host, and drafting nothing that stays
                proposal.tokens.copy_(Rounds.propose(self, gamma).tokens)

        return Drafted(SimpleNamespace(replay=replay), proposal, self._places())  # type: ignore[arg-type]


@pytest.mark.parametrize("draft", ["observation_window", "early_exit"])
@pytest.mark.parametrize("name", ["llama", "qwen2_vl"])
def test_drafting_is_graphed_by_itself(name: str, draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "why_not", lambda *given: None)
    monkeypatch.setattr(decoder, "GraphedDrafting", Rerun)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    Rerun.made = 0
    model, inputs = MODELS[name]()
    inputs = padded(LENGTHS[:3]) if name == "llama" else inputs
    plain = model.generate(**inputs, max_new_tokens=30)
    for more in ({}, {"refresh": 2}) if draft == "observation_window" else ({},):
        own = speculate(model, draft, 3, offload=True, forward=fuse, **more)
        assert model.generate(**inputs, max_new_tokens=30, custom_generate=own).tolist() == plain.tolist()
        assert own.report.path == "drafting graphed, verification not: the full cache is in the CPU's memory"
        assert not own.report.graphed and Rerun.made
    assert drafting.GraphedDrafting is GraphedDrafting


def test_the_slack_is_the_answers_or_little() -> None:
    assert roomy(100, 40) == 100
    assert roomy(10_000, 40) == offload.LEAST
    assert roomy(10_000, 32_000) == 4_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"offload": 1}, "`offload` must be True or False, got 1"),
        ({"offload": True, "resident": -1}, "`resident` must be a whole number of layers, 0 or more, got -1"),
        ({"offload": True, "resident": True}, "`resident` must be a whole number of layers"),
        ({"resident": 2}, "`resident` must be 0 without `offload=True`, got 2"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseToDense("prompt_lookup", **settings)


def test_keeping_all_layers_resident_is_refused() -> None:
    model, inputs = MODELS["llama"]()
    with pytest.raises(ValueError, match="`resident` must be below the model's 3 layers, got 3; leave out `offload`"):
        model.generate(**inputs, custom_generate=speculate(model, offload=True, resident=3))


def test_a_cache_that_does_not_fit_is_refused_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 5_000)
    model, inputs = MODELS["llama"]()
    with pytest.raises(MemoryError, match="`offload` needs 0.0 GiB of the CPU's memory for the full cache, and"):
        model.generate(**inputs, max_new_tokens=9, custom_generate=speculate(model, offload=True))


def test_the_memory_of_a_container_counts(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    system, group = tmp_path / "meminfo", tmp_path / "max"
    monkeypatch.setattr(memory, "MEMORY", system)
    monkeypatch.setattr(memory, "GROUP", group)
    assert memory.available_bytes() is None
    system.write_text("MemTotal: 90 kB\nMemAvailable:    70 kB\n")
    assert memory.available_bytes() == 70 * 1024
    group.write_text("max\n")
    assert memory.available_bytes() == 70 * 1024
    group.write_text("2048\n")
    assert memory.available_bytes() == 2048


def test_buffers_in_the_cpus_memory_share_no_page() -> None:
    many = [Host(3, 5, torch.bfloat16, CPU) for _ in range(20)]
    pages = [each.data_ptr() // memory.PAGE for host in many for each in (host.key, host.value)]
    assert len(set(pages)) == len(pages) and all(host.key.data_ptr() % memory.PAGE == 0 for host in many)


@pytest.mark.gpu
@pytest.mark.parametrize("draft", ["observation_window", "early_exit", "prompt_lookup"])
@pytest.mark.parametrize("pieces", [None, 500])
def test_copying_beside_the_computation_changes_nothing(
    draft: str, pieces: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = many_layers(8).to("cuda")
    ids = tokens(3000, rows=4).cuda()
    more = {"max_new_tokens": 60} | ({} if pieces is None else {"prefill_chunk_size": pieces})
    found, made = {}, Offload

    def run(overlap: bool | None) -> tuple[list[list[int]], list[Tensor]]:
        copies: list[Tensor] = []

        class Watched(made):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs, overlap=bool(overlap))

            def close(self) -> None:
                torch.cuda.synchronize()
                copies.extend(valid(each.host_view(), "key") for each in map(Viewed, self.segments))
                super().close()

        monkeypatch.setattr(offload, "Offload", Watched)
        own = speculate(model, draft, 5, offload=overlap is not None)
        given = model.generate(ids, attention_mask=torch.ones_like(ids), custom_generate=own, **more)
        if overlap is not None and draft != "prompt_lookup":
            assert own.report.path.startswith("drafting graphed")
        return given.tolist(), copies

    for overlap in (None, False, True):
        found[overlap] = run(overlap)
    assert found[True][0] == found[False][0] == found[None][0]
    assert len(found[True][1]) >= 4
    assert all(map(torch.equal, found[True][1], found[False][1]))


class Viewed:
    """Segments as they are in the CPU's memory."""

    def __init__(self, segments: OffloadedSegments) -> None:
        self.segments = segments

    def host_view(self) -> Any:
        own = self.segments
        return SimpleNamespace(
            key=own.host.key.clone(), value=own.host.value.clone(), starts=own.starts.cpu(), lengths=own.lengths.cpu()
        )


@pytest.mark.gpu
def test_the_gpu_holds_less_than_the_full_cache() -> None:
    model = many_layers(12).to("cuda", torch.bfloat16)
    ids = tokens(8000, rows=8).cuda()
    peaks = {}
    for away in (False, True):
        own = speculate(model, "sinks_and_recent", 5, offload=away)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, custom_generate=own)
        peaks[away] = torch.cuda.max_memory_allocated() - before
    assert peaks[True] < peaks[False] - own.report.whole_bytes // 2
