"""Checkpoints: a training state, a cursor and run metadata in one file, replaced atomically.

The file format is safetensors. Everything except the arrays is JSON in the metadata, and loading never executes code from the
file. Array names are paths in the state, for example `params.layers[0].weight`.
"""

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from attrs import field, frozen
from mlx.nn import Module

from mlxfp.core.cursors import Cursor
from mlxfp.core.identity import fingerprint
from mlxfp.distributed import Ranks
from mlxfp.models.safetensors_files import differences
from mlxfp.support.checks import check_types, check_utf8
from mlxfp.support.errors import ArgumentTypeError, CheckpointError
from mlxfp.support.trees import flatten, unflatten
from mlxfp.training.loop.checkpoint_files import (
    FORMAT,
    check_same_segments,
    check_segments,
    compute,
    folder_of,
    head_of,
    json_text,
    name_of,
    numbered,
    open_file,
    paths_of_ranks,
    shards_in,
    without_damaged,
    write_file,
)
from mlxfp.training.loop.events import Evaluation
from mlxfp.training.loop.running_metrics import RunningMetrics, read_numbers
from mlxfp.training.steps.batches import kind
from mlxfp.training.steps.sharding import axes_in, joined, names_of, part_of, segments_in
from mlxfp.training.steps.state import TrainState, check_state, trees_of

_COMPARED = 16  # maximum number of recent checkpoints that a rank reports to the other ranks


@frozen
class Checkpoint:
    """The content of a checkpoint file: a state, and everything that `fit` needs to continue the run.

    Continue with `fit(step, c.state, batches, cursor=c.cursor, history=c.history, running=c.running)`.

    - `history`: the evaluations so far.
    - `running`: the metrics of the unfinished epoch.
    - `config`: the configuration passed to `save_state`.
    - `optimizer`: the settings of the optimizer, or an empty mapping if unknown.
    - `pretrained`: the models of the Hugging Face hub that provided the initial weights, as `org/name@commit`.

    >>> Checkpoint(TrainState({"w": mx.zeros(2)}, {}, {}, step=3, seed=0)).state.step
    3
    """

    state: TrainState
    cursor: Cursor | None = None
    history: tuple[Evaluation, ...] = ()
    config: Mapping[str, Any] = field(factory=dict)
    running: RunningMetrics = field(factory=RunningMetrics, eq=False, repr=False)
    optimizer: Mapping[str, Any] = field(factory=dict)
    pretrained: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the cursor's pipeline. Runs with equal fingerprints see the same batches."""
        return None if self.cursor is None else fingerprint(self.cursor.identity)


def save_state(  # noqa: PLR0913  # parts of a checkpoint
    path: str | os.PathLike[str],
    state: TrainState,
    *,
    cursor: Cursor | None = None,
    history: Sequence[Evaluation] = (),
    running: RunningMetrics | None = None,
    config: Mapping[str, Any] | None = None,
    optimizer: Mapping[str, Any] | None = None,
    pretrained: Sequence[str] = (),
) -> None:
    """Write a training state to a file, together with the cursor and metrics that a run needs to continue.

    The folder must exist. `config` is any value that JSON can represent. `optimizer` and `pretrained` are the fields of the event
    `RunStarted`: the settings of the optimizer, and the models that provided the initial weights. For a model divided between ranks, the
    file has the part of this rank, the number of parts and the names of the divided arrays.

    The old file is replaced after the new file is complete and on the disk. Raises `CheckpointError` for float64 arrays (not supported by
    safetensors), `ArgumentTypeError` if JSON cannot represent the configuration, and `FingerprintError` for the cursor of a pipeline
    without a fingerprint.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> state = fp.train_state(nn.Linear(2, 3), fp.optimizers.adamw(1e-3), seed=7)
    >>> with TemporaryDirectory() as folder:
    ...     fp.save_state(f"{folder}/last.safetensors", state)
    ...     fp.load_state(f"{folder}/last.safetensors", state).state == state
    True
    """
    if isinstance(state, Module):
        raise ArgumentTypeError(
            f"state must be a TrainState, got {type(state).__name__}: {state!r:.80}. To save a model without optimizer, call "
            "models.save(folder, model). To save a training state, call save_state(path, train_state(model, optimizer))."
        )
    check_state(state)
    check_utf8(path, "file")
    check_types((type(None), Cursor), cursor=cursor)
    check_types((type(None), RunningMetrics), running=running)
    trees = trees_of(state)
    arrays = dict(zip(names_of(state.shards, trees), flatten(trees)[1], strict=True))
    wrong = [name for name, array in arrays.items() if array.dtype == mx.float64]
    if wrong:
        raise CheckpointError(f"A checkpoint cannot hold float64, got float64 in {', '.join(wrong)}. Train in float32.")
    running = running or RunningMetrics()
    metadata = {
        "format": FORMAT[0],
        "version": FORMAT[1],
        "step": state.step,
        "seed": state.seed,
        "running": {"totals": running.totals, "unread": read_numbers(running.unread)},
        "cursor": None if cursor is None else base64.b64encode(cursor.to_bytes()).decode(),
        "history": [(evaluation.step, dict(evaluation.metrics)) for evaluation in history],
        "config": dict(config or {}),
        "optimizer": dict(optimizer or {}),
        "pretrained": list(pretrained),
    }
    if state.shards is not None:
        metadata["shards"] = _shards_of(state)
    write_file(Path(path), arrays, {"mlxfp": json_text(metadata)})


def load_state(path: str | os.PathLike[str], like: TrainState) -> Checkpoint:
    """Read a checkpoint of `save_state`. The argument `like` is a state of the same model and optimizer.

    All arrays are bit-identical to the saved arrays. Raises `CheckpointError` if arrays are missing, unexpected, or have another shape or
    dtype than in `like`. The message names these arrays. Also raises `CheckpointError` if the file is damaged, or is not a checkpoint.

    If a model is divided between ranks, each rank saves its own part. Raises `CheckpointError` for the part of another rank. To join the
    parts, use `load_latest`.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> from mlx import nn
    >>> small, large = (fp.train_state(nn.Linear(2, size), fp.optimizers.adamw(1e-3)) for size in (1, 2))
    >>> with TemporaryDirectory() as folder:
    ...     fp.save_state(f"{folder}/last.safetensors", small)
    ...     try:
    ...         fp.load_state(f"{folder}/last.safetensors", large)
    ...     except fp.errors.CheckpointError as error:
    ...         print("params.weight" in str(error) or str(error))
    True
    """
    check_state(like, "like")
    arrays, fields = open_file(Path(path))
    compute(Path(path), arrays)  # read all arrays now: MLX reads lazily, but the file may be replaced soon
    own_shards = _shards_of(like)
    stored, target = ((shards["index"], shards["count"]) for shards in (fields["shards"], own_shards))
    if stored != target:
        content, expected = (f"part {index + 1} of {count}" if count > 1 else "a whole state" for index, count in (stored, target))
        raise CheckpointError(
            f"{path} contains {content}, but the argument `like` contains {expected}. A model divided between ranks has one file per rank. "
            "Read all files with load_latest(folder, like, ranks=connect()). The folder must contain the folder rank-0."
        )
    check_same_segments(Path(path), fields["shards"], own_shards)
    return _fitting(Path(path), arrays, fields, like)


def _shards_of(state: TrainState) -> dict[str, Any]:
    shards, trees = state.shards, trees_of(state)
    if shards is None:
        return shards_in({})
    layout = {"axes": axes_in(shards, trees), "segments": segments_in(shards, trees)}
    return {"index": shards.index, "count": shards.count, **layout}


def _fitting(path: Path, arrays: dict[str, mx.array], fields: dict[str, Any], target: TrainState) -> Checkpoint:
    """Put the arrays of a checkpoint into the structure of the target state."""
    structure, leaves = flatten(trees_of(target))
    names = names_of(target.shards, trees_of(target))
    expected = dict(zip(names, map(kind, leaves), strict=True))
    if problems := differences(expected, {name: kind(array) for name, array in arrays.items()}):
        listed = "\n  ".join(problems)
        hint = "Use the model and optimizer of the checkpoint, and step.start(state) for a step with options."
        raise CheckpointError(f"The checkpoint {path} does not fit the state passed as like=. {hint} Differences:\n  {listed}")
    trees = unflatten(structure, [arrays[name] for name in names])
    rest = {name: value for name, value in fields.items() if name not in ("step", "seed", "shards")}
    return Checkpoint(TrainState(**trees, step=fields["step"], seed=fields["seed"], shards=target.shards), **rest)


def load_latest(folder: str | os.PathLike[str], like: TrainState, *, ranks: Ranks | None = None) -> Checkpoint:
    """Read the latest checkpoint that `observers.checkpoint` wrote to a folder. Without a checkpoint, return `like` for a new run.

    The same code therefore starts a new run and continues a killed run. If the newest file is damaged, the function warns and reads an
    older file. With `ranks`, each rank reads its own checkpoint of the last step saved by all ranks.

    A run can continue with another number of ranks, if the global batches stay the same. In this case, all ranks read the same file: the
    newest checkpoint in the folder. For a divided model, each rank joins the saved parts, and keeps only its own part in the new run.

    Raises the errors of `load_state`. Also raises `CheckpointError` if the ranks have no checkpoint of the same step, or if parts cannot be
    joined. Parts made by MLX's own `shard_linear` cannot be joined.

    >>> from tempfile import TemporaryDirectory
    >>> start = TrainState({"w": mx.zeros(2)}, {}, {}, step=0, seed=0)
    >>> with TemporaryDirectory() as folder:
    ...     begin = load_latest(folder, start)
    >>> begin.state == start, begin.cursor
    (True, None)
    """
    check_state(like, "like")
    check_types((type(None), Ranks), ranks=ranks)
    paths_by_step = without_damaged(numbered(folder_of(folder, ranks)))
    if ranks is None:
        step = max(paths_by_step, default=None)
    elif (other_run := _last_of_other_run(ranks, all_paths := paths_of_ranks(folder), like)) is None:
        step = _common_step(ranks, paths_by_step, folder)
    elif other_run[1] > 1 or like.shards is not None:
        return _joined(_files_of_all_parts(ranks, all_paths, folder), like)
    else:
        step, _ = other_run
        paths_by_step = {step: paths[-1] for step, paths in all_paths.items()} | paths_by_step
        _check_seen(ranks, step, paths_by_step, folder)
    return Checkpoint(like) if step is None else load_state(paths_by_step[step], like)


def _last_of_other_run(ranks: Ranks, all_paths: Mapping[int, Sequence[Path]], target: TrainState) -> tuple[int, int] | None:
    """Return the step of the newest checkpoint, and the number of ranks that shared one copy of the model in the run of the checkpoint.

    Return None if that run had as many ranks as this run.
    """
    last = max(all_paths, default=-1)
    message = [last, 0, 0] if last < 0 else [last, *_shards_and_parts_in(all_paths[last][-1])]
    step, shards, parts = map(int, max(ranks.gather(message))[:3])
    same = shards in (0, ranks.world.copies) and parts in (0, _shards_of(target)["count"])
    return None if step < 0 or same else (step, parts)


def _shards_and_parts_in(path: Path) -> tuple[int, int]:
    """Return the number of dataset shards and the number of model parts in the run that wrote a checkpoint. An unknown number is 0."""
    head = head_of(path)
    cursor = head.get("cursor")
    division = None if cursor is None else Cursor.from_bytes(base64.b64decode(cursor)).division
    shards = 0 if division is None else division.shards
    return shards, shards_in(head)["count"] if head else 0


def _files_of_all_parts(ranks: Ranks, all_paths: Mapping[int, Sequence[Path]], folder: str | os.PathLike[str]) -> Sequence[Path]:
    """Return the files of all parts of the state, in order, for the last complete step."""
    complete = {step: parts for step, paths in all_paths.items() if (parts := _all_parts(paths))}
    step = _common_step(ranks, complete, folder)
    if step is None:
        newest_file = name_of(max(all_paths))
        folders = ", ".join(path.parent.name for path in all_paths[max(all_paths)])
        raise CheckpointError(
            f"The model is divided between ranks, but {os.fspath(folder)} has no step with the files of all ranks. The newest file, "
            f"{newest_file}, is only in {folders}. Use a folder shared by all machines, or copy the files of all ranks to this folder. To "
            "begin a new run, use another folder."
        )
    return complete[step]


def _all_parts(paths: Sequence[Path]) -> Sequence[Path]:
    """Return one file for each part of a state, in order. Return an empty list if a part is missing or damaged."""
    shards = [(shards_in(head), path) for path in paths if (head := head_of(path))]
    count = shards[0][0]["count"] if shards else 0
    files = {shard["index"]: path for shard, path in shards if shard["count"] == count}
    return [files[index] for index in sorted(files)] if len(files) == count else []


def _joined(paths: Sequence[Path], target: TrainState) -> Checkpoint:
    """Read one file for each part of a saved model, and join the parts of each array. Return only the part that belongs to `target`.

    Arrays are processed one at a time to limit memory.
    """
    opened = [open_file(path) for path in paths]
    names, (_, fields) = list(opened[0][0]), opened[0]
    stored_shards, target_shards = fields["shards"], _shards_of(target)
    check_segments(paths[0], stored_shards, target_shards)
    joined_arrays = {}
    for name in names:
        parts = [arrays.pop(name) for arrays, _ in opened if name in arrays]
        array = joined(parts, stored_shards["axes"][name], stored_shards["segments"][name]) if name in stored_shards["axes"] else parts[0]
        axis, sizes = target_shards["axes"].get(name), target_shards["segments"].get(name, ())
        if axis is not None and array.ndim > axis and array.shape[axis] == sum(sizes):
            array = part_of(array, axis, sizes, target_shards["index"], target_shards["count"])
        compute(paths[0], array)
        joined_arrays[name] = array
    return _fitting(paths[0], joined_arrays, fields, target)


def _check_seen(ranks: Ranks, step: int, steps: Collection[int], folder: str | os.PathLike[str]) -> None:
    missing = [str(rank) for rank, (seen,) in enumerate(ranks.gather([step in steps])) if not seen]
    if missing:
        raise CheckpointError(
            f"The number of ranks has changed, so all ranks must read the same file: {name_of(step)} in {os.fspath(folder)}. This file is "
            f"missing on rank {', '.join(missing)}. Use a folder shared by all machines, or copy the file to every machine."
        )


def _common_step(ranks: Ranks, saved_steps: Collection[int], folder: str | os.PathLike[str]) -> int | None:
    """Return the last step with a checkpoint on all ranks. Return None if no rank has a checkpoint."""
    last = sorted(saved_steps)[-_COMPARED:]
    seen = [{int(step) for step in steps if step >= 0} for steps in ranks.gather([*last, *[-1] * (_COMPARED - len(last))])]
    common = set.intersection(*seen)
    if not common and any(seen):
        last_steps = ", ".join(f"rank {rank}: {max(steps, default='none')}" for rank, steps in enumerate(seen))
        raise CheckpointError(
            f"The ranks have no checkpoint of the same step in {os.fspath(folder)}. Last saved steps: {last_steps}. Start as many ranks "
            "as in the earlier run. Every rank needs the checkpoints that this rank saved. To begin a new run, use another folder."
        )
    return max(common, default=None)
