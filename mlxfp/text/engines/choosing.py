"""Choice of an engine for a tokenizer.

An engine (a faster package) must first return the same ids as the `tokenizers` package for test texts.
"""

import os
import platform
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as hf
from attrs import frozen

from mlxfp.support.atomic_files import user_cache
from mlxfp.text.engines.cleared import kind_of, read_ranges, to_table, trial_of
from mlxfp.text.engines.gates import Gate, make_gate
from mlxfp.text.engines.gigatoken import GIGATOKEN
from mlxfp.text.engines.probes import find_difference, probe_texts
from mlxfp.text.engines.protocol import Engine, EngineKind
from mlxfp.text.engines.tokie import TOKIE
from mlxfp.text.tokenizers.json_checks import is_panic
from mlxfp.text.tokenizers.tokenizer import EngineName, configuration_of, engine

ENGINES = (GIGATOKEN, TOKIE)  # engines in the order of preference, fastest first
_ASCII = 128
# Maximum number of bytes in a token. The recursion in tokie is one level deep per byte: 1,000 bytes overflow a stack of 256 KB.
_LONGEST = 512
_LARGEST = 1 << 20  # Maximum number of tokens in a vocabulary. The largest vocabularies tested by fuzzing have 262,144.


@frozen(eq=False)
class Proved:
    """Fast encoding package (engine) that passed a test with a tokenizer. The `gate` selects the texts that the engine can encode."""

    name: str  # name and version of the engine
    engine: Engine
    gate: Gate


@frozen(eq=False)
class Choice:
    """Result of `choose`: the engine for a tokenizer or None, and the reasons why other engines are not used."""

    proved: Proved | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        ways = "tokenizers" if self.proved is None else f"{self.proved.name}, and by tokenizers where the ids could differ"
        return "; ".join((f"encoded by {ways}", *self.reasons))


@lru_cache(maxsize=8)
def choose(json: str, wanted: EngineName) -> Choice:
    """Return the first engine that passes the test for a tokenizer. `wanted` names the only engine to try, or is "auto"."""
    reasons = list[str]()
    try:
        for kind in ENGINES if wanted == "auto" else [kind for kind in ENGINES if kind.name == wanted]:
            result = prove(kind, json)
            if not isinstance(result, str):
                return Choice(result, tuple(reasons))
            reasons.append(f"{kind.name} is not used: {result}")
        return Choice(None, tuple(reasons))
    finally:
        configuration_of.cache_clear()


# A forked process must start engines again, because their threads do not survive a fork.
os.register_at_fork(after_in_child=choose.cache_clear)


@frozen
class EngineStatus:
    """Installed package (engine) that encodes texts to token ids faster than the package `tokenizers`.

    `tested` is True if the installed versions of the engine and of `tokenizers` passed a comparison on many random texts.

    >>> EngineStatus("gigatoken", "0.10.1", tested=True).tested
    True
    """

    name: str
    version: str
    tested: bool


def token_engines() -> tuple[EngineStatus, ...]:
    """Return the installed packages for fast encoding (engines), fastest first. Without `pip install "mlxfp[fast]"`, the result is empty.

    >>> all(engine.version for engine in token_engines())
    True
    """
    return tuple(EngineStatus(kind.name, kind.version, _is_tested(kind)) for kind in ENGINES if kind.version is not None)


def _is_tested(kind: EngineKind) -> bool:
    versions = trial_of(kind.name).versions
    return versions.get(kind.name) == kind.version and versions["tokenizers"].split(".")[:2] == hf.__version__.split(".")[:2]


def prove(kind: EngineKind, json: str) -> Proved | str:  # noqa: PLR0911  # a reason per case
    """Test whether an engine returns the correct ids for a tokenizer. Return the engine, or the reason why the engine cannot be used."""
    if kind.version is None:
        return 'not installed (pip install "mlxfp[fast]")'
    tokenizer = engine(json)
    configuration = configuration_of(json)
    vocabulary = tokenizer.get_vocab()
    if len(vocabulary) > _LARGEST or any(len(token.encode()) > _LONGEST for token in vocabulary):
        return f"engines are tested with at most {_LARGEST:,} tokens of at most {_LONGEST} bytes"
    if configuration.normalizers and any(token["normalized"] for token in configuration.added_tokens):
        return "an added token is searched in normalized text"
    ranges = trial_of(kind.name).kinds.get(kind_of(configuration))
    if ranges is None:
        return "fuzzing has not cleared this kind of tokenizer"
    cleared = to_table(read_ranges(ranges))
    if not _is_tested(kind):
        cleared[_ASCII:] = False
    gate = make_gate(cleared, configuration.added_tokens)
    try:
        built = kind.build(json)
        different = None if is_kept(kind, json, gate) else find_difference(built, tokenizer, gate, probe_texts(tokenizer, gate))
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            return f"the engine cannot load this tokenizer ({_first_line(error)})"
        raise
    if different is not None:
        return f"the ids differ for {different!r:.80}"
    keep(kind, json, gate)
    return Proved(f"{kind.name} {kind.version}", built, gate)


def _first_line(error: Any) -> str:
    return str(error).strip().partition("\n")[0][:120] or type(error).__name__


_UNUSABLE = (OSError, RuntimeError)  # exceptions raised if the cache folder is not accessible, or if the user has no home folder


def is_kept(kind: EngineKind, json: str, gate: Gate) -> bool:
    """Return True if the cache folder records that an engine has returned the correct ids for the test texts (see `keep`)."""
    with suppress(*_UNUSABLE):
        return _proof(kind, json, gate).is_file()
    return False


def keep(kind: EngineKind, json: str, gate: Gate) -> None:
    """Record that an engine returned the correct ids for the test texts. Do nothing if the cache folder is not writable."""
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
