"""What a model would need, and what there is: asked before a model is loaded beside others. Knows files and bytes.

Next hops: `..estimate` reckons; `models.py` unloads others where it is too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import EdgeLLMError


class Memory:
    """This machine's."""

    def needed(self, source: str, options: Mapping[str, Any]) -> int:
        """Bytes that loading `source` with options of LLM.load would take; 0 if nobody can say, as of one that is not here yet.

        Reckoned as if weights were packed where they may be: used as they are, which needs less, they are slower.
        """
        from ..config import EngineConfig
        from ..estimate import estimate

        try:
            found = estimate(source, EngineConfig(**options))
        except EdgeLLMError:
            return 0  # loading says what is wrong with it
        is_mapped = found.layout == "mapped" or options.get("weights") == "raw"
        return found.peak_bytes - (found.weight_bytes if is_mapped else 0)

    def available(self) -> int:
        """Bytes that this process could be given now."""
        from ..cache.memory import available_bytes

        return available_bytes()
