"""The campaigns that ship are predicted from the calibration that ships, and from none of their own cells."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from headscope.accounting.calibration import Calibration
from headscope.bench import crossing_summary

FOLDER = Path(__file__).parents[2] / "scores" / "bench"
CAMPAIGNS = sorted(FOLDER.glob("crossing-*.json"))


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.name)
def test_a_shipped_campaign_is_what_its_cells_and_its_calibration_say(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    known = document["calibration"]
    file = FOLDER / known["file"]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == known["sha256"]
    calibration = Calibration.load(file)
    assert calibration.campaign == known["campaign"] != document["campaign"]
    derived = crossing_summary.of(document, calibration)  # refuses a shared cell
    assert {name: document[name] for name in derived} == json.loads(json.dumps(derived))
