"""Data and training for MLX as values and pure functions.

This file is a table of contents. A name is imported when it is first used, so `import mlxfp` loads neither MLX nor Arrow.
To add a name: its module below, an import for type checkers, and `__all__`; `tests/test_import.py` holds the three equal.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it as True; importing it from typing would cost more than the rest of this file
if TYPE_CHECKING:
    from mlxfp import collators, config, distributed, kaggle, models, runs, runtime, tasks, testing
    from mlxfp.collators.collating import collate
    from mlxfp.core.cursors import Cursor, aiterate, iterate
    from mlxfp.core.datasets import Combinator, Dataset, RowWise, Source, Stage, Wrapper
    from mlxfp.core.describing import explain, length, schema
    from mlxfp.core.diffing import diff
    from mlxfp.core.errors import (
        ArgumentError,
        ArgumentTypeError,
        CheckpointError,
        ConfigError,
        CursorError,
        CursorMismatchError,
        DataError,
        FingerprintError,
        MissingExtraError,
        MissingFileError,
        MlxfpError,
        PipelineError,
        SchemaError,
        UnknownNameError,
    )
    from mlxfp.core.examples import Examples
    from mlxfp.core.freezing import freeze
    from mlxfp.core.identity import fingerprint
    from mlxfp.core.optimizing import optimize
    from mlxfp.core.pipelines import compose, pipe
    from mlxfp.data.accounting import Proportion, proportions
    from mlxfp.data.arrow_files import read_arrow
    from mlxfp.data.augmenting import drop_fields, drop_tokens, replace_tokens
    from mlxfp.data.batching import batch, unbatch
    from mlxfp.data.bucketing import batch_by_tokens, bucket_by_length
    from mlxfp.data.caching import cache, load
    from mlxfp.data.columns import drop_columns, rename_columns, select_columns
    from mlxfp.data.csv_files import read_csv
    from mlxfp.data.elements import filter, flat_map, map, map_chunks, skip, take
    from mlxfp.data.filtering import filter_by
    from mlxfp.data.hf_datasets import from_hf
    from mlxfp.data.json_files import read_jsonl
    from mlxfp.data.locating import Origin
    from mlxfp.data.measuring import measure, measured
    from mlxfp.data.media_files import read_audio, read_images
    from mlxfp.data.mixing import concat, interleave, mix
    from mlxfp.data.packing import pack
    from mlxfp.data.parquet_files import read_parquet
    from mlxfp.data.prefetching import prefetch
    from mlxfp.data.previewing import preview
    from mlxfp.data.profiling import Profile, profile
    from mlxfp.data.provenance import origins, replay
    from mlxfp.data.repeating import repeat
    from mlxfp.data.selecting import select, split
    from mlxfp.data.shaping import ShapePlan, shape_plan, shapes
    from mlxfp.data.sharding import World, shard
    from mlxfp.data.shuffling import ShuffleQuality, shuffle, shuffle_quality
    from mlxfp.data.skipping import Skipped, on_error, skipped
    from mlxfp.data.sources import from_examples, from_iterable, from_table
    from mlxfp.data.splitting import Splits, splits
    from mlxfp.data.text_files import read_text
    from mlxfp.data.torch_datasets import from_torch
    from mlxfp.data.windowing import windows
    from mlxfp.evaluation import metrics
    from mlxfp.text.padding import pad
    from mlxfp.text.templates import Template, template
    from mlxfp.text.tokenizer_files import load_tokenizer
    from mlxfp.text.tokenizer_training import train_tokenizer
    from mlxfp.text.tokenizers import Tokenizer
    from mlxfp.text.tokenizing import tokenize
    from mlxfp.training import events, losses, observers, optimizers, schedules
    from mlxfp.training.averaging import averaged
    from mlxfp.training.checkpoints import load_latest, load_state, save_state
    from mlxfp.training.loops import best, evaluate, fit, last, predict
    from mlxfp.training.nonfinite import NonFiniteError
    from mlxfp.training.plotting import plot_run
    from mlxfp.training.state import TrainState, train_state
    from mlxfp.training.steps import train_step
    from mlxfp.training.transforms import functional, jit

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CheckpointError",
    "Combinator",
    "ConfigError",
    "Cursor",
    "CursorError",
    "CursorMismatchError",
    "DataError",
    "Dataset",
    "Examples",
    "FingerprintError",
    "MissingExtraError",
    "MissingFileError",
    "MlxfpError",
    "NonFiniteError",
    "Origin",
    "PipelineError",
    "Profile",
    "Proportion",
    "RowWise",
    "SchemaError",
    "ShapePlan",
    "ShuffleQuality",
    "Skipped",
    "Source",
    "Splits",
    "Stage",
    "Template",
    "Tokenizer",
    "TrainState",
    "UnknownNameError",
    "World",
    "Wrapper",
    "aiterate",
    "averaged",
    "batch",
    "batch_by_tokens",
    "best",
    "bucket_by_length",
    "cache",
    "collate",
    "collators",
    "compose",
    "concat",
    "config",
    "diff",
    "distributed",
    "drop_columns",
    "drop_fields",
    "drop_tokens",
    "evaluate",
    "events",
    "explain",
    "filter",
    "filter_by",
    "fingerprint",
    "fit",
    "flat_map",
    "freeze",
    "from_examples",
    "from_hf",
    "from_iterable",
    "from_table",
    "from_torch",
    "functional",
    "interleave",
    "iterate",
    "jit",
    "kaggle",
    "last",
    "length",
    "load",
    "load_latest",
    "load_state",
    "load_tokenizer",
    "losses",
    "map",
    "map_chunks",
    "measure",
    "measured",
    "metrics",
    "mix",
    "models",
    "observers",
    "on_error",
    "optimize",
    "optimizers",
    "origins",
    "pack",
    "pad",
    "pipe",
    "plot_run",
    "predict",
    "prefetch",
    "preview",
    "profile",
    "proportions",
    "read_arrow",
    "read_audio",
    "read_csv",
    "read_images",
    "read_jsonl",
    "read_parquet",
    "read_text",
    "rename_columns",
    "repeat",
    "replace_tokens",
    "replay",
    "runs",
    "runtime",
    "save_state",
    "schedules",
    "schema",
    "select",
    "select_columns",
    "shape_plan",
    "shapes",
    "shard",
    "shuffle",
    "shuffle_quality",
    "skip",
    "skipped",
    "split",
    "splits",
    "take",
    "tasks",
    "template",
    "testing",
    "tokenize",
    "train_state",
    "train_step",
    "train_tokenizer",
    "unbatch",
    "windows",
]

# Module -> the public names that live in it.
_NAMES: dict[str, tuple[str, ...]] = {
    "mlxfp.collators.collating": ("collate",),
    "mlxfp.core.cursors": ("Cursor", "aiterate", "iterate"),
    "mlxfp.core.datasets": ("Combinator", "Dataset", "RowWise", "Source", "Stage", "Wrapper"),
    "mlxfp.core.describing": ("explain", "length", "schema"),
    "mlxfp.core.diffing": ("diff",),
    "mlxfp.core.errors": (
        "ArgumentError",
        "ArgumentTypeError",
        "CheckpointError",
        "ConfigError",
        "CursorError",
        "CursorMismatchError",
        "DataError",
        "FingerprintError",
        "MissingExtraError",
        "MissingFileError",
        "MlxfpError",
        "PipelineError",
        "SchemaError",
        "UnknownNameError",
    ),
    "mlxfp.core.examples": ("Examples",),
    "mlxfp.core.freezing": ("freeze",),
    "mlxfp.core.identity": ("fingerprint",),
    "mlxfp.core.optimizing": ("optimize",),
    "mlxfp.core.pipelines": ("compose", "pipe"),
    "mlxfp.data.accounting": ("Proportion", "proportions"),
    "mlxfp.data.arrow_files": ("read_arrow",),
    "mlxfp.data.augmenting": ("drop_fields", "drop_tokens", "replace_tokens"),
    "mlxfp.data.batching": ("batch", "unbatch"),
    "mlxfp.data.bucketing": ("batch_by_tokens", "bucket_by_length"),
    "mlxfp.data.caching": ("cache", "load"),
    "mlxfp.data.columns": ("drop_columns", "rename_columns", "select_columns"),
    "mlxfp.data.csv_files": ("read_csv",),
    "mlxfp.data.elements": ("filter", "flat_map", "map", "map_chunks", "skip", "take"),
    "mlxfp.data.filtering": ("filter_by",),
    "mlxfp.data.hf_datasets": ("from_hf",),
    "mlxfp.data.json_files": ("read_jsonl",),
    "mlxfp.data.locating": ("Origin",),
    "mlxfp.data.measuring": ("measure", "measured"),
    "mlxfp.data.media_files": ("read_audio", "read_images"),
    "mlxfp.data.mixing": ("concat", "interleave", "mix"),
    "mlxfp.data.packing": ("pack",),
    "mlxfp.data.parquet_files": ("read_parquet",),
    "mlxfp.data.prefetching": ("prefetch",),
    "mlxfp.data.previewing": ("preview",),
    "mlxfp.data.profiling": ("Profile", "profile"),
    "mlxfp.data.provenance": ("origins", "replay"),
    "mlxfp.data.repeating": ("repeat",),
    "mlxfp.data.selecting": ("select", "split"),
    "mlxfp.data.shaping": ("ShapePlan", "shape_plan", "shapes"),
    "mlxfp.data.sharding": ("World", "shard"),
    "mlxfp.data.shuffling": ("ShuffleQuality", "shuffle", "shuffle_quality"),
    "mlxfp.data.skipping": ("Skipped", "on_error", "skipped"),
    "mlxfp.data.sources": ("from_examples", "from_iterable", "from_table"),
    "mlxfp.data.splitting": ("Splits", "splits"),
    "mlxfp.data.text_files": ("read_text",),
    "mlxfp.data.torch_datasets": ("from_torch",),
    "mlxfp.data.windowing": ("windows",),
    "mlxfp.text.padding": ("pad",),
    "mlxfp.text.templates": ("Template", "template"),
    "mlxfp.text.tokenizer_files": ("load_tokenizer",),
    "mlxfp.text.tokenizer_training": ("train_tokenizer",),
    "mlxfp.text.tokenizers": ("Tokenizer",),
    "mlxfp.text.tokenizing": ("tokenize",),
    "mlxfp.training.averaging": ("averaged",),
    "mlxfp.training.checkpoints": ("load_latest", "load_state", "save_state"),
    "mlxfp.training.loops": ("best", "evaluate", "fit", "last", "predict"),
    "mlxfp.training.nonfinite": ("NonFiniteError",),
    "mlxfp.training.plotting": ("plot_run",),
    "mlxfp.training.state": ("TrainState", "train_state"),
    "mlxfp.training.steps": ("train_step",),
    "mlxfp.training.transforms": ("functional", "jit"),
}

# Family -> the module that holds its members: `fp.losses.mse` lives in mlxfp/training/losses.py.
_FAMILIES = {
    "collators": "mlxfp.collators",
    "config": "mlxfp.config",
    "distributed": "mlxfp.distributed",
    "events": "mlxfp.training.events",
    "kaggle": "mlxfp.kaggle",
    "losses": "mlxfp.training.losses",
    "metrics": "mlxfp.evaluation.metrics",
    "models": "mlxfp.models",
    "observers": "mlxfp.training.observers",
    "optimizers": "mlxfp.training.optimizers",
    "runs": "mlxfp.runs",
    "runtime": "mlxfp.runtime",
    "schedules": "mlxfp.training.schedules",
    "tasks": "mlxfp.tasks",
    "testing": "mlxfp.testing",
}

_HOMES = {name: module for module, names in _NAMES.items() for name in names} | _FAMILIES


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'mlxfp' has no attribute {name!r}", name=name, obj=import_module(__name__))
    module = import_module(_HOMES[name])
    value = module if name in _FAMILIES else getattr(module, name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return __all__
