"""``python -m headscope``: the same as the command ``headscope``."""

from __future__ import annotations

import sys

from headscope.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
