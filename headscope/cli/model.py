"""A choice of `model`: where it is, what results call it, what it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.resources import find

if TYPE_CHECKING:
    from headscope.families import Geometry

BUNDLED = "bundled:"


@dataclass(frozen=True)
class Model:
    """path: a hub id, a folder, or `bundled:` and what ships with headscope. name: its id in results; None: the path's.

    prompt, max_new_tokens, dtype, tests: defaults that the verbs' configs refer to. fetch: the command that puts it
    where it is looked for, when it does not ship.
    """

    path: str
    name: str | None = None
    revision: str | None = None
    prompt: str | None = None
    max_new_tokens: int | None = None
    dtype: str = "auto"
    tests: tuple[str, ...] | None = None
    fetch: str | None = None

    @property
    def location(self) -> str:
        """Where it is loaded from."""
        inside = self.path.removeprefix(BUNDLED)
        if inside == self.path:
            return self.path
        try:
            return str(find(*inside.split("/")))
        except FileNotFoundError:
            if self.fetch is None:
                raise
            raise FileNotFoundError(f"`model` {self.name} is not here yet; run `{self.fetch}` in a checkout") from None

    @property
    def label(self) -> str:
        """What files are named after: the name, or the last part of the path."""
        path = Path(self.path).expanduser()
        named = self.name or (path.resolve() if path.is_dir() else path).name
        return named.rpartition("/")[2].removesuffix(".gguf")

    def geometry(self) -> Geometry:
        """Read its layers and heads from its config, before anything is loaded."""
        from headscope.families import geometry
        from headscope.families.loading import read_config

        return geometry(read_config(self.location, revision=self.revision))

    def load(self, dtype: str, device: str | None, device_map: str | None, local_rank: int = 0) -> tuple[Any, Any]:
        """Load (model, processor); on a GPU where there is one and nothing else is said."""
        from headscope.families.loading import load

        chosen = device or (None if device_map else free_device(local_rank))
        model, processor, _ = load(
            self.location, dtype=dtype, device=chosen, device_map=device_map, revision=self.revision
        )
        return model, processor

    def load_any(self, dtype: str, device: str | None, device_map: str | None) -> tuple[Any, Any]:
        """Load a vision model with its processor, or a text model with its tokenizer."""
        from headscope.families.text import is_text, load_text

        if not is_text(self.location, revision=self.revision):
            return self.load(dtype, device, device_map)
        chosen = device or (None if device_map else free_device())
        return load_text(self.location, dtype=dtype, device=chosen, device_map=device_map, revision=self.revision)


def free_device(local_rank: int = 0) -> str:
    """Name this process's own GPU, or the CPU."""
    import torch

    return f"cuda:{local_rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
