"""Which engine encodes the texts of a tokenizer, how far, and why not another one: proved, or not used."""

import os
from functools import lru_cache
from typing import Any

import tokenizers as hf
from attrs import frozen

from mlxfp.text.engines.cleared import kind_of, read_ranges, to_table, trial_of
from mlxfp.text.engines.gates import Gate, make_gate, searches_normalized_text
from mlxfp.text.engines.gigatoken import GIGATOKEN
from mlxfp.text.engines.probes import find_difference, probe_texts
from mlxfp.text.engines.proofs import is_kept, keep
from mlxfp.text.engines.protocol import Engine, EngineKind
from mlxfp.text.engines.tokie import TOKIE
from mlxfp.text.tokenizers.json_checks import is_panic
from mlxfp.text.tokenizers.tokenizer import EngineName, configuration_of, engine

ENGINES = (GIGATOKEN, TOKIE)  # the faster one first, where both can encode
_ASCII = 128


@frozen(eq=False)
class Proved:
    """An engine for a tokenizer, which has passed its probe, and the gate that texts have to pass."""

    name: str  # with the version
    engine: Engine
    gate: Gate


@frozen(eq=False)
class Choice:
    """The engine that encodes, if any, and why others do not."""

    proved: Proved | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        ways = "tokenizers" if self.proved is None else f"{self.proved.name}, by tokenizers what it is not cleared for"
        return "; ".join((f"encoded by {ways}", *self.reasons))


@lru_cache(maxsize=8)
def choose(json: str, wanted: EngineName) -> Choice:
    """Choose the first engine that is proved for the tokenizer of a JSON text; `wanted` names the only one to try, or "auto"."""
    reasons = list[str]()
    try:
        for kind in ENGINES if wanted == "auto" else [kind for kind in ENGINES if kind.name == wanted]:
            found = prove(kind, json)
            if not isinstance(found, str):
                return Choice(found, tuple(reasons))
            reasons.append(f"not by {kind.name}: {found}")
        return Choice(None, tuple(reasons))
    finally:
        configuration_of.cache_clear()


os.register_at_fork(after_in_child=choose.cache_clear)  # the threads of an engine stay behind


@frozen
class EngineStatus:
    """An installed token engine; `tested` is true if fuzzing covered its version together with the installed version of `tokenizers`.

    >>> EngineStatus("gigatoken", "0.10.1", tested=True).tested
    True
    """

    name: str
    version: str
    tested: bool


def token_engines() -> tuple[EngineStatus, ...]:
    """Return the installed token engines, the fastest first; without the extra `fast` there are none.

    >>> all(engine.version for engine in token_engines())
    True
    """
    return tuple(EngineStatus(kind.name, kind.version, _is_tested(kind)) for kind in ENGINES if kind.version is not None)


def _is_tested(kind: EngineKind) -> bool:
    versions = trial_of(kind.name).versions
    return versions.get(kind.name) == kind.version and versions["tokenizers"].split(".")[:2] == hf.__version__.split(".")[:2]


def prove(kind: EngineKind, json: str) -> Proved | str:
    """Return an engine with its gate, or why it is not used."""
    if kind.version is None:
        return 'it is not installed (pip install "mlxfp[fast]")'
    own = engine(json)
    configuration = configuration_of(json)
    if searches_normalized_text(configuration.added_tokens, configuration.normalizers):
        return "an added token is searched in normalized text"
    ranges = trial_of(kind.name).kinds.get(kind_of(configuration))
    if ranges is None:
        return "fuzzing has not cleared it for this kind of tokenizer"
    cleared = to_table(read_ranges(ranges))
    if not _is_tested(kind):
        cleared[_ASCII:] = False
    gate = make_gate(cleared, configuration.added_tokens)
    try:
        built = kind.build(json)
        different = None if is_kept(kind, json, gate) else find_difference(built, own, gate, probe_texts(own, gate))
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            return f"it does not take this tokenizer ({_first_line(error)})"
        raise
    if different is not None:
        return f"it gives other ids for {different!r:.80}"
    keep(kind, json, gate)
    return Proved(f"{kind.name} {kind.version}", built, gate)


def _first_line(error: Any) -> str:
    return str(error).strip().partition("\n")[0][:120] or type(error).__name__
