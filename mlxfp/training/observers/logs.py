"""Two observers: one writes the log of a run as JSON lines, and one adds events with the memory use."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import lru_cache, partial
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

import mlx.core as mx
from attrs import fields

from mlxfp.distributed import Ranks
from mlxfp.support.atomic_files import append, write_whole
from mlxfp.support.checks import check_positive, explain_call
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, MemoryRead, Observer, Stepped
from mlxfp.training.observers.first_rank import on_first_rank

_WORDS = ("total", "reason", "message", "path")  # event fields that are logged in addition to the metrics


@explain_call
def log_metrics(path: str | os.PathLike[str], *, ranks: Ranks | None = None) -> Observer:
    """Write the events to a log, a `.jsonl` file with one JSON line per event.

    Each line has `event` (the class name), `step`, `epoch` and `seconds` since the start, and the fields of the event: `metrics` (with
    the learning rate for steps), `reason`, `path`. Steps without metrics are omitted (see `log_every` of `fit`). Non-finite numbers
    become null in JSON.

    A run from step 0 starts a new log. A run continued at step n first removes the log lines of later steps, and then appends. The log is
    thus the same as for an uninterrupted run. For output on the console, use `progress`.

    Put `log_metrics` last: events added by observers after `log_metrics` are not logged. With `ranks`, only rank 0 writes. Raises
    `ArgumentError` for a file with another suffix.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> events = [fp.events.Evaluated(fp.TrainState({}, {}, {}, 7, 0), None, 0, {"accuracy": 0.5})]
    >>> with TemporaryDirectory() as folder:
    ...     _ = list(fp.pipe(events, fp.observers.log_metrics(f"{folder}/log.jsonl")))
    ...     [line] = map(json.loads, Path(f"{folder}/log.jsonl").read_text().splitlines())
    >>> line["event"], line["step"], line["metrics"]
    ('Evaluated', 7, {'accuracy': 0.5})

    See also: `plot_run` to plot a log, `on_event` to write events with your own function.
    """
    if Path(path).suffix != ".jsonl":
        raise ArgumentError(f"A log is a .jsonl file, got {os.fspath(path)!r}. Use this suffix.")
    return on_first_rank(ranks, partial(_log_metrics, path=Path(path)))


def log_memory(*, limit: int | None = None) -> Observer:
    """Add a `MemoryRead` event whenever `fit` reads the metrics: bytes in use, peak bytes, and bytes cached for reuse.

    The peak is the peak since the previous reading or the start of the run. With `fit(..., log_every=1)`, the peak is the peak of one step.

    If used and cached bytes together exceed `limit`, the cache is cleared (`mx.clear_cache`). The event has the numbers before clearing.
    Without `limit`, only MLX's own limit applies (`mx.get_memory_limit`).

    >>> import mlxfp as fp
    >>> events = [fp.events.Stepped(fp.TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5})]
    >>> [type(event).__name__ for event in fp.pipe(events, fp.observers.log_memory(limit=8 * 2**30))]
    ['Stepped', 'MemoryRead']
    """
    if limit is not None:
        check_positive(limit=limit)
    return partial(_log_memory, limit=limit)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a JSON log. An incomplete last line is ignored.

    Raises `DataError` for a file not written by `log_metrics`, and `MissingFileError` for a missing file.

    >>> read_log(Path("missing.jsonl"))
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: There is no log at missing.jsonl. Write one with observers.log_metrics.
    """
    if not path.is_file():
        raise MissingFileError(f"There is no log at {path}. Write one with observers.log_metrics.")
    return [json.loads(line) for line, *_ in _lines(path)]


_NEEDS = {"Stepped": "metrics", "Warned": "message", "Stopped": "reason"}  # class name of an event -> name of a required field


def numbers_of(event: Event) -> dict[str, float]:
    """Return the values to log: metrics and learning rates of a step, metrics of an epoch or evaluation, or memory use in bytes."""
    match event:
        case Stepped(metrics=metrics) if metrics:
            rates = event.learning_rates
            names = ["learning_rate"] if len(rates) == 1 else [f"learning_rate/{group}" for group in range(len(rates))]
            return {**metrics, **dict(zip(names, rates, strict=True))}
        case EpochEnded(metrics=metrics) | Evaluated(metrics=metrics):
            return dict(metrics)
        case MemoryRead(active=active, peak=peak, cache=cache):
            return {"memory/active": active, "memory/peak": peak, "memory/cache": cache}
    return {}


def _log_memory(events: Iterable[Event], *, limit: int | None) -> Iterator[Event]:
    mx.reset_peak_memory()
    for event in events:
        yield event
        if isinstance(event, Stepped) and event.metrics:
            active, cache = mx.get_active_memory(), mx.get_cache_memory()
            if limit is not None and active + cache > limit:
                mx.clear_cache()
            peak = mx.get_peak_memory()
            mx.reset_peak_memory()
            yield event.derive(MemoryRead, active, peak, cache)


def _log_metrics(events: Iterable[Event], *, path: Path) -> Iterator[Event]:
    with ExitStack() as stack:
        file: TextIO | None = None
        began = 0.0
        for event in events:
            if file is None:
                began = monotonic() - _begin(path, event)
                file = stack.enter_context(path.open("a", encoding="utf-8", newline=""))
            if not isinstance(event, Stepped) or event.metrics:
                append(file, _json_line(_record(event, monotonic() - began)))
            yield event


def _record(event: Event, seconds: float) -> dict[str, Any]:
    kind: Any = type(event)  # `Any`, because mypy wrongly reports that event classes are not hashable
    head = {"event": kind.__name__, "step": event.step, "epoch": event.epoch, "seconds": round(seconds, 3)}
    words = {name: getattr(event, name) for name in _words(kind)}
    numbers = numbers_of(event)
    return head | words | ({"metrics": numbers} if numbers else {})


@lru_cache(maxsize=64)  # cached per event class, because `hasattr(event, name)` is slow for missing attributes of attrs classes
def _words(kind: type[Event]) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in fields(kind) if attribute.name in _WORDS)


def _json_line(record: Mapping[str, Any]) -> str:
    metrics = {name: value if isfinite(value) else None for name, value in record.get("metrics", {}).items()}
    return json.dumps({**record, "metrics": metrics} if metrics else record, default=str) + "\n"


def _parse_json(line: str) -> tuple[str, int, float]:
    """Return the event name, the step, and the seconds since the start of the run. Raises `ValueError` for an invalid line."""
    record = json.loads(line)
    event, step, seconds, metrics = (record.get(name, {}) for name in ("event", "step", "seconds", "metrics"))
    counts = all(type(count) is int and 0 <= count < 1 << 53 for count in (step, record.get("epoch", 0)))
    if not (isinstance(event, str) and counts and _is_number(seconds) and record.get(_NEEDS.get(event, "event")) is not None):
        raise ValueError("event must be text, step and epoch must be integers, seconds must be a number, and no field may be missing")
    words = [record.get(name) for name in ("message", "reason")]
    if not all(isinstance(word, str | None) for word in words) or not isinstance(metrics, dict):
        raise ValueError("message and reason must be text, and metrics must be an object")
    if not all(value is None or _is_number(value) for value in metrics.values()):
        raise ValueError("each metric must be a number or null")
    return event, step, float(seconds)


def _is_number(value: object) -> bool:
    """Return True for a JSON number within the range of float64. `_json_line` writes null for other numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _begin(path: Path, first: Event) -> float:
    """Remove the lines of a log that a continued run will write again. Return the field `seconds` of the last remaining line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Remove the logged evaluations of the first step if the history lacks them, because the continued run then evaluates again.
    evaluated = any(evaluation.step == first.step for evaluation in getattr(first, "history", ()))
    remaining = [
        (line, seconds)
        for line, event, step, seconds in (_lines(path) if path.exists() else ())
        if step < first.step or (step == first.step > 0 and (event == "Stepped" or (evaluated and event != "Stopped")))
    ]
    write_whole(path, "".join(line for line, _ in remaining).encode())
    return remaining[-1][1] if remaining else 0.0


def _lines(path: Path) -> Iterator[tuple[str, str, int, float]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a log of log_metrics: {error.reason} at byte {error.start}. Use another file.") from error
    *lines, _ = text.split("\n")  # the text after the last newline is empty or an incomplete line
    for number, line in enumerate(lines, 1):
        try:
            yield f"{line}\n", *_parse_json(line)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise DataError(f"{path} is not a log of log_metrics: line {number} is {line!r:.80}. Use another file.") from error
