"""Provenance of a measurement: hardware, software and commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from headscope.software import versions


def provenance(device: torch.device, commit: str | None = None) -> dict[str, Any]:
    """Give what a result file says of the machine and the code; no host names, no paths.

    commit: for a copy of the tree without its history; else read from git.
    """
    return {"hardware": hardware(device), "software": software(device), "commit": commit or _commit()}


def hardware(device: torch.device) -> dict[str, Any]:
    """Name the device: the GPU and its memory in GiB, or the processor and the threads in use."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {"gpu": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    return {"cpu": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def software(device: torch.device) -> dict[str, str]:
    """Give the versions in use, CUDA's and Triton's too on a GPU."""
    if device.type != "cuda":
        return versions()
    import triton

    return {**versions(), "cuda": str(torch.version.cuda), "triton": triton.__version__}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
