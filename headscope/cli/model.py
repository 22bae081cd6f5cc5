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

    prompt, max_new_tokens, dtype: defaults that the verbs' configs refer to.
    """

    path: str
    name: str | None = None
    revision: str | None = None
    prompt: str | None = None
    max_new_tokens: int | None = None
    dtype: str = "auto"

    @property
    def location(self) -> str:
        """Where it is loaded from."""
        inside = self.path.removeprefix(BUNDLED)
        return self.path if inside == self.path else str(find(*inside.split("/")))

    @property
    def label(self) -> str:
        """What files are named after: the name, or the last part of the path."""
        path = Path(self.path).expanduser()
        return (self.name or (path.resolve() if path.is_dir() else path).name).rpartition("/")[2]

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


def free_device(local_rank: int = 0) -> str:
    """Name this process's own GPU, or the CPU."""
    import torch

    return f"cuda:{local_rank % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
