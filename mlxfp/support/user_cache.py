"""The folder of this user for what is kept from one run of Python to the next, and can be made again."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return `$XDG_CACHE_HOME/mlxfp`, or else `~/.cache/mlxfp`. It may not exist."""
    wanted = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (wanted if wanted.is_absolute() else Path.home() / ".cache") / "mlxfp"
