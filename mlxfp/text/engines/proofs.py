"""Records of passed engine tests in the user's cache folder, so that a test of almost a second is not repeated."""

import platform
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

import numpy as np
import tokenizers as hf

from mlxfp.support.user_cache import user_cache
from mlxfp.text.engines.gates import Gate
from mlxfp.text.engines.protocol import EngineKind

_UNUSABLE = (OSError, RuntimeError)  # raised for a cache folder without access, and for a user without a home folder


def is_kept(kind: EngineKind, json: str, gate: Gate) -> bool:
    """Return True if an engine has already passed the test for a tokenizer with this gate."""
    with suppress(*_UNUSABLE):
        return _proof(kind, json, gate).is_file()
    return False


def keep(kind: EngineKind, json: str, gate: Gate) -> None:
    """Record that an engine has passed the test, if the cache folder is writable."""
    with suppress(*_UNUSABLE):
        proof = _proof(kind, json, gate)
        proof.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        proof.touch()


def _proof(kind: EngineKind, json: str, gate: Gate) -> Path:
    """Return the path of the empty file that records a passed test.

    The file name is a hash of everything that affects the test result, including the source code of this package.
    """
    build = f"{kind.build.__module__}.{kind.build.__qualname__}"
    parts = (kind.name, kind.version, build, hf.__version__, platform.system(), platform.machine(), *gate.refused, json)
    digest = blake2b(_code() + np.packbits(gate.cleared).tobytes(), digest_size=16)
    for text in parts:
        digest.update(f"\0{text}".encode())
    return user_cache() / "engines" / digest.hexdigest()


@cache
def _code() -> bytes:
    sources = sorted((file for file in files(__package__).iterdir() if file.name.endswith(".py")), key=lambda file: file.name)
    return b"".join(file.read_bytes() for file in sources)
