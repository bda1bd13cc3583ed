"""lora: a training step with LoRA on a Llama of mlx-lm, compared with the trainer of mlx-lm on the same conversations."""

from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.measuring import Row, best, installed

_SIZE, _EQUAL, _VOCABULARY = 8, 128, 2048
_LENGTHS = 128, 256  # lengths of packed rows; the longest conversation has 256 tokens
_TOKENS = 6 * (_LENGTHS[0] + 1)  # tokens per packed batch, about as many as in a padded batch of mlx-lm


def rows(*, small: bool) -> list[Row]:
    """Train both with equal batches, then mlxfp with packed rows and mlx-lm with padded batches."""
    steps = 4 if small else 50
    work = [f"a LoRA step on a Llama of mlx-lm, {_SIZE} rows of one length", "the same, counted tokens of packed conversations"]
    if not installed("mlx_lm"):
        return [Row("lora", line, "-", "mlx-lm: not installed", None, bar) for line, bar in zip(work, (1.0, 1.25), strict=True)]
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(60), 0.7, 2000), 8, _LENGTHS[-1]).astype(int)
    chats = [rng.integers(1, _VOCABULARY, length).tolist() for length in lengths]
    equal = [rng.integers(1, _VOCABULARY, _EQUAL).tolist() for _ in range(_SIZE * 10)]  # mlx-lm pads rows to a multiple of 32, plus 1
    same = best([partial(_ours, equal, steps, packed=False), partial(_theirs, equal, steps)], repeats=2 if small else 5)
    packed = best([partial(_ours, chats, steps, packed=True), partial(_theirs, chats, steps)], repeats=2 if small else 5)
    counted = _count(chats, steps), _theirs(chats, steps)
    ours, theirs = (count / time for count, time in zip(counted, packed, strict=True))
    return [
        Row("lora", work[0], f"{same[0] / steps * 1000:.1f} ms", f"mlx-lm {same[1] / steps * 1000:.1f} ms", same[1] / same[0], 1.0),
        Row("lora", work[1], f"{ours:,.0f} tokens/s", f"mlx-lm {theirs:,.0f} tokens/s", ours / theirs, 1.25),
    ]


def _llama() -> Any:
    llama = import_module("mlx_lm.models.llama")
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 384, "num_attention_heads": 4, "rms_norm_eps": 1e-5}
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs(model_type="llama", vocab_size=_VOCABULARY, **sizes))
    mx.eval(model.parameters())
    return fp.models.lora(model, rank=8)


def _loss(model: Any, batch: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
    logits = fp.models.call_packed(model, batch) if "segment_ids" in batch else model(batch["input_ids"])
    return fp.losses.cross_entropy(logits, batch["labels"])


def _ours(chats: list[list[int]], steps: int, *, packed: bool) -> None:
    model, optimizer = _llama(), fp.optimizers.adamw(1e-4)
    step, start = fp.train_step(model, _loss, optimizer), fp.train_state(model, optimizer)
    fp.last(fp.fit(step, start, _batches(chats, packed=packed), steps=steps, log_every=steps))


def _batches(chats: list[list[int]], *, packed: bool) -> fp.Dataset[Any]:
    rows = fp.pipe(fp.from_table({"input_ids": chats}), fp.repeat(None), fp.shuffle(seed=0, buffer=500))
    if not packed:
        return fp.pipe(rows, fp.batch(_SIZE), fp.collate(fp.collators.causal(pad_id=0, length=_EQUAL)))
    lengths = [length + 1 for length in _LENGTHS]  # a row of n + 1 tokens gives n predictions
    groups = fp.pipe(rows, fp.pack(lengths), fp.bucket_by_length(lengths, tokens=_TOKENS))
    return fp.pipe(groups, fp.collate(fp.collators.causal(pad_id=0, packed=True, lengths=_LENGTHS)))


def _count(chats: list[list[int]], steps: int) -> int:
    """Return the number of tokens predicted by the steps of mlxfp on packed rows."""
    return sum(int((batch["labels"] >= 0).sum()) for batch in islice(_batches(chats, packed=True), steps))


def _theirs(chats: list[list[int]], steps: int) -> int:
    """Train with mlx-lm and return the number of predicted tokens."""
    trainer, counted = import_module("mlx_lm.tuner.trainer"), list[int]()

    class Callback(trainer.TrainingCallback):  # type: ignore[name-defined,misc]  # mlx-lm has no types
        def on_train_loss_report(self, info: dict[str, Any]) -> None:
            counted.append(info["trained_tokens"])

    with TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        arguments = trainer.TrainingArgs(
            batch_size=_SIZE,
            iters=steps,
            steps_per_report=steps,
            steps_per_save=steps + 1,
            adapter_file=Path(folder, "adapters.safetensors"),
        )
        data = [(chat, 0) for chat in chats]
        trainer.train(_llama(), fp.optimizers.adamw(1e-4), data, args=arguments, training_callback=Callback())
    return counted[-1] - steps * _SIZE  # mlx-lm also counts one padding token per row
