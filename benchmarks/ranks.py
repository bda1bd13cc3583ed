"""ranks: two processes train a model, compared with one process with the same cores and batches."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice, repeat
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.measuring import Row
from mlxfp.app.cli.ranks import start

_WIDTH, _ROWS = 1792, 256  # perceptron of 10 million parameters
_VOCABULARY, _LENGTH, _TEXTS = 8192, 128, 32  # language model of 10 million parameters
_RUN = "import sys; from benchmarks.ranks import run; run(*sys.argv[1:])"
_WARM = 3  # uncounted steps; the first step compiles


def rows(*, small: bool) -> list[Row]:
    """Train models of 10 million parameters in two processes with one core each, and in one process with two cores."""
    found: dict[tuple[str, str], float] = {}
    for _ in range(1 if small else 2):  # alternate, because a busy moment affects all kinds
        for work, steps, kinds in (("language", 5, ("together", "apart", "one")), ("perceptron", 20, ("together", "apart", "one", "sum"))):
            for kind in kinds:
                found[work, kind] = min(found.get((work, kind), inf), _timed(work, kind, 2 if small else steps))
    made = []
    for work, said, bar in (
        ("language", f"a language model of 10M parameters, {_TEXTS} x {_LENGTH} tokens", 1.1),
        ("perceptron", f"a perceptron of 10M parameters, {_ROWS} rows", None),
    ):
        together, apart, one = (found[work, kind] for kind in ("together", "apart", "one"))
        ours = f"{together * 1000:,.0f} ms a step"
        ring = f", all_sum alone {found[work, 'sum'] * 1000:,.0f} ms" if (work, "sum") in found else ""
        made += [
            Row("ranks", f"{said}, 2 ranks", ours, f"one process, 2 cores {one * 1000:,.0f} ms", together / one, bar, "at most"),
            Row("ranks", "the same", ours, f"2 that send nothing {apart * 1000:,.0f} ms{ring}", together / apart, bar, "at most"),
        ]
    return made


def _timed(work: str, kind: str, steps: int) -> float:
    """Return the median time of a step in seconds, for the slower rank."""
    with TemporaryDirectory() as folder:
        program = [sys.executable, "-c", _RUN, work, kind, str(steps), folder]
        with subprocess.Popen(program) if kind == "one" else start(["-n", "2", "--backend", "ring", "--", *program]) as process:
            process.wait()
        return max(float(file.read_text()) for file in Path(folder).iterdir())


# --- code of the training processes


def run(work: str, kind: str, steps: str, folder: str) -> None:
    """Train, and write the median step time of this rank into a folder."""
    from mlxfp.runtime import use_fast_blas

    use_fast_blas(threads=2 if kind == "one" else 1)  # must run before the import of MLX
    import mlx.core as mx

    import mlxfp as fp

    ranks = fp.distributed.connect()
    size = 1 if kind == "one" else 2
    mx.random.seed(0)
    step = _all_sum(ranks) if kind == "sum" else _step(*_WORKS[work](size), ranks if kind == "together" else None)
    times, began = [], perf_counter()
    for _ in islice(step, int(steps) + _WARM):
        mx.synchronize()
        times.append(perf_counter() - began)
        began = perf_counter()
    Path(folder, str(ranks.world.rank)).write_text(json.dumps(median(times[_WARM:])))


def _step(model: Any, batch: dict[str, Any], loss: Callable[..., Any], ranks: Any) -> Any:
    import mlx.core as mx
    from mlx import optimizers

    import mlxfp as fp

    mx.eval(batch)
    optimizer = optimizers.AdamW(1e-4)
    step = fp.train_step(model, loss, optimizer, ranks=ranks)
    return fp.fit(step, fp.train_state(model, optimizer), repeat(batch), epochs=1)


def _all_sum(ranks: Any) -> Any:
    """Sum as many numbers as the model has parameters across the ranks, without training."""
    import mlx.core as mx

    numbers = mx.random.normal((10_000_000,))
    mx.eval(numbers)
    while True:
        mx.eval(ranks.add_up_all(numbers))
        yield


def _perceptron(size: int) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
    import mlx.core as mx
    from mlx import nn

    import mlxfp as fp

    layers = [layer for _ in range(3) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(_WIDTH, 10))
    rows = _ROWS // size
    batch = {"x": mx.random.normal((rows, _WIDTH)), "label": mx.arange(rows) % 10}
    return model, batch, lambda model, batch: fp.losses.cross_entropy(model(batch["x"]), batch["label"])


def _language(size: int) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
    import mlx.core as mx

    import mlxfp as fp

    config = fp.models.DecoderConfig(
        vocab_size=_VOCABULARY, hidden_size=320, num_hidden_layers=6, num_attention_heads=5, num_key_value_heads=5, intermediate_size=864
    )
    model = fp.models.CausalLM(fp.models.Decoder(config, seed=0))
    ids = mx.random.randint(0, _VOCABULARY, (_TEXTS // size, _LENGTH))
    return model, {"input_ids": ids, "attention_mask": mx.ones_like(ids), "labels": ids}, fp.losses.causal_lm


_WORKS = {"perceptron": _perceptron, "language": _language}
