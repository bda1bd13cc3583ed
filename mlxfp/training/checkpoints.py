"""Checkpoints: a state and a cursor in one file, written so that a crash leaves either the old one or the new one.

The file is safetensors, with the rest as JSON in its metadata; nothing in it is ever executed. Arrays are named by their place in the
state: `params.layers[0].weight`.
"""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import mlx.core as mx
from attrs import frozen

from mlxfp.core.checks import check_types
from mlxfp.core.cursors import Cursor
from mlxfp.core.errors import CheckpointError, MissingFileError
from mlxfp.core.trees import paths
from mlxfp.training.state import TrainState, flat_state, leaves_of

_FORMAT = ("mlxfp.state", 1)  # name and version


@frozen
class Checkpoint:
    """What a checkpoint file holds: `fit(step, checkpoint.state, batches, cursor=checkpoint.cursor)` continues the run."""

    state: TrainState
    cursor: Cursor | None


def save_state(path: str | os.PathLike[str], state: TrainState, *, cursor: Cursor | None = None) -> None:
    """Write a state, and the cursor that belongs to it, to a file; the folder must exist.

    The file is complete and on the disk before it takes the place of an older one. Raises `CheckpointError` for arrays that
    safetensors cannot hold (float64).

    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> from mlxfp.training.optimizers import adamw
    >>> from mlxfp.training.state import train_state
    >>> state = train_state(nn.Linear(2, 3), adamw(1e-3), seed=7)
    >>> with TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/last.safetensors", state)
    ...     load_state(f"{folder}/last.safetensors", state).state == state
    True
    """
    check_types(TrainState, state=state)
    check_types((type(None), Cursor), cursor=cursor)
    structure, leaves = leaves_of(state)
    arrays = dict(zip(paths(structure), leaves, strict=True))
    wrong = [name for name, array in arrays.items() if array.dtype == mx.float64]
    if wrong:
        raise CheckpointError(f"A checkpoint cannot hold float64, got it in {', '.join(wrong)}. Train in float32.")
    rest = {
        "format": _FORMAT[0],
        "version": _FORMAT[1],
        "step": state.step,
        "seed": state.seed,
        "cursor": None if cursor is None else base64.b64encode(cursor.to_bytes()).decode(),
    }
    _replace(Path(path), arrays, {"mlxfp": json.dumps(rest)})


def load_state(path: str | os.PathLike[str], like: TrainState) -> Checkpoint:
    """Read what `save_state` wrote, into the structure of `like`: a state of the same model and optimizer.

    Every array is bit for bit what was saved. Raises `CheckpointError`, naming every array that is missing, unexpected, or of another
    shape or dtype than in `like`; and for a file that is damaged or not a checkpoint.

    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> from mlxfp.training.optimizers import adamw
    >>> from mlxfp.training.state import train_state
    >>> small, large = (train_state(nn.Linear(2, size), adamw(1e-3)) for size in (1, 2))
    >>> with TemporaryDirectory() as folder:
    ...     save_state(f"{folder}/last.safetensors", small)
    ...     try:
    ...         load_state(f"{folder}/last.safetensors", large)
    ...     except CheckpointError as error:
    ...         print("params.weight" in str(error) or str(error))
    True
    """
    check_types(TrainState, like=like)
    arrays, numbers, cursor = _read(Path(path))
    structure, leaves = leaves_of(like)
    expected = dict(zip(paths(structure), leaves, strict=True))
    differences = [f"missing: {name} {_kind(array)}" for name, array in expected.items() if name not in arrays]
    differences += [f"unexpected: {name} {_kind(array)}" for name, array in sorted(arrays.items()) if name not in expected]
    differences += [
        f"different: {name} is {_kind(arrays[name])}, expected {_kind(array)}"
        for name, array in expected.items()
        if name in arrays and _kind(arrays[name]) != _kind(array)
    ]
    if differences:
        listed = "\n  ".join(differences)
        raise CheckpointError(f"{path} does not fit the state it is loaded into (another model or optimizer?):\n  {listed}")
    return Checkpoint(flat_state(structure, [arrays[name] for name in expected], **numbers), cursor)


def _kind(array: mx.array) -> str:
    return f"{str(array.dtype).removeprefix('mlx.core.')}{list(array.shape)}"


def _replace(path: Path, arrays: Mapping[str, mx.array], metadata: dict[str, str]) -> None:
    if not path.parent.is_dir():
        raise MissingFileError(f"There is no folder {path.parent} to write {path.name} into. Create it first.")
    temporary = path.with_name(f".{path.name}.{token_hex(8)}.safetensors")
    try:
        mx.save_safetensors(str(temporary), dict(arrays), metadata)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)  # the new name, too, must be on the disk
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path) -> tuple[dict[str, mx.array], dict[str, int], Cursor | None]:
    if not path.is_file():
        raise MissingFileError(f"There is no checkpoint at {path}. Check the path, or write one with save_state.")
    try:
        loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
        arrays, metadata = loaded
        mx.eval(arrays)  # now: MLX reads when it needs to, and by then the file may be another one
        rest = json.loads(metadata["mlxfp"])
        version = rest["format"], rest["version"]
        step, seed, cursor = int(rest["step"]), int(rest["seed"]), rest["cursor"] and base64.b64decode(rest["cursor"], validate=True)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}. Use a file that save_state wrote.") from error
    if version != _FORMAT:
        raise CheckpointError(
            f"{path} has the format {version}, and this version of mlxfp reads {_FORMAT}. Read it with the mlxfp that wrote it."
        )
    return arrays, {"step": step, "seed": seed}, None if cursor is None else Cursor.from_bytes(cursor)
