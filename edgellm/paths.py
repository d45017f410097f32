"""Where edgellm keeps what it downloads and compiles: EDGELLM_HOME, or the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The folder; it may not exist yet."""
    chosen = os.environ.get("EDGELLM_HOME")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("edgellm", appauthor=False))
