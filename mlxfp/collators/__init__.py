"""Collators: pure functions from a sequence of examples to a dict of MLX arrays."""

from mlxfp.collators.causal_lm import causal
from mlxfp.collators.collate_functions import foreign
from mlxfp.collators.columns import Collator
from mlxfp.collators.combining import multimodal
from mlxfp.collators.images import NORMALIZATIONS, Normalization, vision
from mlxfp.collators.masked_lm import masked
from mlxfp.collators.plain import default
from mlxfp.collators.preferences import preference
from mlxfp.collators.sequence_to_sequence import seq2seq
from mlxfp.collators.task_specs import COLLATORS, TASKS, TaskSpec, for_task
from mlxfp.collators.texts import text
from mlxfp.collators.token_labels import character_spans, tokens
from mlxfp.collators.waveforms import audio
from mlxfp.data.sound.spectrograms import LogMel

__all__ = [
    "COLLATORS",
    "NORMALIZATIONS",
    "TASKS",
    "Collator",
    "LogMel",
    "Normalization",
    "TaskSpec",
    "audio",
    "causal",
    "character_spans",
    "default",
    "for_task",
    "foreign",
    "masked",
    "multimodal",
    "preference",
    "seq2seq",
    "text",
    "tokens",
    "vision",
]


def __dir__() -> list[str]:
    return __all__
