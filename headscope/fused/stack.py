"""The stack: the weights of a Llama-like decoder, layer by layer, as the model holds them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscope.families import geometry, language_model
from headscope.kernels.rotate import Rotary

LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"})
STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn", "mrope"})  # frequencies that no length changes
SPARSE = "headscope_sparse"  # attribute of a sparse projection's forward: its threshold, or None while it is off
SINGLE = "headscope_single"  # and whether it is sparse for single rows only
KNOWN_HOOKS = ("transformers.utils.output_capturing", "headscope.attach.")  # modules whose hooks change nothing here
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, eq=False)
class Linear:
    """A projection. weight: [outputs, inputs]. bias: [outputs] or None.

    threshold: inside a `hs.sparsify` block, magnitude above which an input of a single row counts; None: all count.
    Inside such a block a weight on a GPU lies input by input.
    """

    weight: Tensor
    bias: Tensor | None
    threshold: float | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """A decoder layer: two RMS norms, the attention's and the feed-forward's projections, how its heads turn."""

    attention_gain: Tensor
    feed_forward_gain: Tensor
    eps: float
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    gate: Linear
    up: Linear
    down: Linear
    rotary: Rotary
    scaling: float


@dataclass(frozen=True, eq=False)
class Stack:
    """A decoder from the embedding to the head. embedding: [token, width]. gain: of the last norm."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    gain: Tensor
    eps: float
    head: Linear

    @property
    def linears(self) -> list[Linear]:
        """All projections, layer by layer, and the head."""
        own = [(each.q, each.k, each.v, each.o, each.gate, each.up, each.down) for each in self.layers]
        return [*(linear for layer in own for linear in layer), self.head]

    @property
    def sparse(self) -> bool:
        """Whether a projection leaves inputs out."""
        return any(linear.threshold is not None for linear in self.linears)

    @property
    def weights(self) -> list[Tensor]:
        """What every dense step reads: projections, norms and head; not the embedding's table."""
        norms = [(each.attention_gain, each.feed_forward_gain, *each.rotary.gains) for each in self.layers]
        own = [(linear.weight, linear.bias) for linear in self.linears]
        return [tensor for part in [(self.gain,), *norms, *own] for tensor in part if tensor is not None]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that every dense step reads."""
        return sum(tensor.nbytes for tensor in self.weights)

    @property
    def marks(self) -> list[Any]:
        """Say where the weights lie and how, and which inputs count: a graph of a step holds while this is the same."""
        places = [(each.data_ptr(), each.stride()) for each in (self.embedding, *self.weights)]
        return [*places, *(linear.threshold for linear in self.linears)]


def find_stack(model: nn.Module) -> Stack | None:
    """Give a model's decoder stack; None where it is not like Llama's, or is changed, quantised or split.

    The weights are the model's own tensors: nothing is copied, and a change of them is seen.
    """
    stack: Any = language_model(model)
    head = getattr(model, "lm_head", None)
    if not _known(stack.config) or not _plain(head, stack.embed_tokens):
        return None
    around = getattr(model, "model", stack), stack, stack.embed_tokens, stack.rotary_emb, stack.norm, head
    if not all(map(_untouched, itertools.chain(around, stack.layers.modules()))):
        return None
    layers = [_layer(layer, stack.rotary_emb) for layer in stack.layers]
    found = [layer for layer in layers if layer is not None]
    if len(found) < len(layers):
        return None
    norm = stack.norm
    made = Stack(stack.embed_tokens.weight, tuple(found), norm.weight, norm.variance_epsilon, _linear(head))
    return made if _together(made) else None


def _known(config: Any) -> bool:
    """Tell whether the config is of a stack that this module knows, its layers seeing all keys."""
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    frequencies = geometry(config).head_dim // 2
    windows = any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or [])
    windows = windows or (config.model_type == "mistral" and getattr(config, "sliding_window", None) is not None)
    whole = rope.get("partial_rotary_factor", 1.0) == 1.0
    return config.model_type in LLAMA_LIKE and kind in STATIC_ROPE and whole and not windows and frequencies > 0


def _untouched(module: nn.Module) -> bool:
    """Tell whether nobody has hung a hook on a module, or put a forward of their own before that of its class.

    The hooks that transformers leaves behind to record hidden states only look, and those of `hs.compress` see to
    what its decode steps do not need; sparse projections are known.
    """
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    others = [hook for hook in hooks if not (getattr(hook, "__module__", None) or "").startswith(KNOWN_HOOKS)]
    own = vars(module).get("forward")
    return not others and (own is None or getattr(own, SINGLE, False))


def _plain(head: Any, embedding: Any) -> bool:
    return type(head) is nn.Linear and type(embedding) is nn.Embedding


def _layer(layer: Any, rotary: Any) -> Layer | None:
    attention, feed_forward = layer.self_attn, layer.mlp
    modules = {name: getattr(attention, name, None) or getattr(feed_forward, name, None) for name in PROJECTIONS}
    if any(type(module) is not nn.Linear for module in modules.values()):
        return None
    if not isinstance(feed_forward.act_fn, nn.SiLU) and type(feed_forward.act_fn).__name__ != "SiLUActivation":
        return None
    norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    query_gain, key_gain = (None if norm is None else norm.weight for norm in norms)
    eps = layer.input_layernorm.variance_epsilon
    return Layer(
        attention_gain=layer.input_layernorm.weight,
        feed_forward_gain=layer.post_attention_layernorm.weight,
        eps=eps,
        rotary=Rotary(rotary.inv_freq.float(), float(rotary.attention_scaling), query_gain, key_gain, eps),
        scaling=float(attention.scaling),
        **{name.removesuffix("_proj"): _linear(module) for name, module in modules.items()},
    )


def _linear(module: Any) -> Linear:
    return Linear(module.weight, module.bias, getattr(vars(module).get("forward"), SPARSE, None))


def _together(stack: Stack) -> bool:
    """Tell whether all weights are plain tensors on one device that is not "meta", and all matrices of one dtype.

    A quantised or split weight may be a tensor of its own kind inside a plain nn.Linear.
    """
    first, own = stack.embedding, [stack.embedding, *stack.weights]
    plain = all(type(each) in (Tensor, nn.Parameter) and each.device == first.device for each in own)
    same = all(each.dtype == first.dtype for each in own if each.ndim > 1)
    known = first.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return plain and same and known and first.device.type != "meta"
