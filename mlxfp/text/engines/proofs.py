"""Which engines have passed the probe of which tokenizers, kept in the user's cache folder: a probe takes most of a second."""

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

_UNUSABLE = (OSError, RuntimeError)  # a folder that cannot be read or written, and a user without one


def is_kept(kind: EngineKind, json: str, gate: Gate) -> bool:
    """Say whether an engine has passed the probe of a tokenizer before, with this gate."""
    with suppress(*_UNUSABLE):
        return _proof(kind, json, gate).is_file()
    return False


def keep(kind: EngineKind, json: str, gate: Gate) -> None:
    """Keep that it has passed, where the folder can be written."""
    with suppress(*_UNUSABLE):
        proof = _proof(kind, json, gate)
        proof.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        proof.touch()


def _proof(kind: EngineKind, json: str, gate: Gate) -> Path:
    """Return the empty file that says so. Its name is a hash of all that the result depends on, the code of the probe among it."""
    build = f"{kind.build.__module__}.{kind.build.__qualname__}"
    said = (kind.name, kind.version, build, hf.__version__, platform.system(), platform.machine(), *gate.refused, json)
    digest = blake2b(_code() + np.packbits(gate.cleared).tobytes(), digest_size=16)
    for text in said:
        digest.update(f"\0{text}".encode())
    return user_cache() / "engines" / digest.hexdigest()


@cache
def _code() -> bytes:
    found = sorted((each for each in files(__package__).iterdir() if each.name.endswith(".py")), key=lambda each: each.name)
    return b"".join(each.read_bytes() for each in found)
