"""Folder of the user for files that are kept between runs of Python and can be made again."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return `$XDG_CACHE_HOME/mlxfp`, otherwise `~/.cache/mlxfp`. The folder may not exist."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "mlxfp"
