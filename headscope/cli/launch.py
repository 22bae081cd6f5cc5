"""Launching: one checked command line through Hydra, in this process or in the jobs of a multirun."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headscope.cli.bind import bind
from headscope.cli.line import Line
from headscope.cli.place import Place
from headscope.resources import find

# Where a person stands is where files go: no run folder, no copy of the config, no log file.
SETTINGS = {
    "hydra.run.dir": ".",
    "hydra.output_subdir": "null",
    "hydra/job_logging": "none",
    "hydra/hydra_logging": "none",
}


class Job:
    """What Hydra calls with each composed config; it may travel to another process or machine.

    Errors in this process are kept, so that a sweep's other jobs still run and Hydra prints none of them.
    """

    def __init__(self, function: Callable[..., None], line: Line) -> None:
        self.function, self.line = function, line
        self.start, self.process = Path.cwd(), os.getpid()
        self.errors: list[Exception] = []

    def __call__(self, config: Any) -> None:
        try:
            with contextlib.chdir(self.start):
                self._run(config)
        except Exception as error:
            if os.getpid() != self.process:
                raise
            self.errors.append(error)

    def _run(self, config: Any) -> None:
        from hydra.core.hydra_config import HydraConfig

        runtime = HydraConfig.get()
        job = tuple(runtime.overrides.task)
        place = Place()
        if self.line.multirun:
            print(f"job {runtime.job.num}: {' '.join(job)}")
            place = Place(Path(runtime.runtime.output_dir), job, self.line.swept)
        self.function(place, **bind(self.function, plain(config)))


def plain(config: Any) -> dict[str, Any]:
    """Turn a composed config into plain Python values; a ``???`` that is left is an error that names its key."""
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    try:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        missing = sorted(OmegaConf.missing_keys(config))
        raise ValueError(f"`{missing[0]}` is required; give {missing[0]}=...") from error
    return {str(key): value for key, value in values.items()}  # type: ignore[union-attr]


def launch(verb: str, function: Callable[..., None], line: Line) -> None:
    """Run one command line. Raises what its job raised; of several failed jobs the first, the others being printed."""
    import hydra

    job = Job(function, line)
    typed = {override.partition("=")[0] for override in line.overrides}
    settings = {"hydra.job.name": verb.replace(" ", "-")} | SETTINGS
    given = [f"{key}={value}" for key, value in settings.items() if key not in typed]
    with _arguments([verb, *line.flags, *given, *line.overrides]), _exceptions_pass():
        hydra.main(config_path=str(find("conf")), config_name=line.config, version_base=None)(job)()
    for error in job.errors[1:]:
        print(f"headscope: error: {error}", file=sys.stderr)
    if job.errors:
        raise job.errors[0]


@contextlib.contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    """Let Hydra, which reads sys.argv, see these words."""
    before, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def _exceptions_pass() -> Iterator[None]:
    """Let exceptions through Hydra, which else prints its own text and exits with code 1."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        os.environ.pop("HYDRA_FULL_ERROR") if before is None else os.environ.update(HYDRA_FULL_ERROR=before)
