"""attention: packed rows and local attention with blocks, against the same with a mask of the whole row."""

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.measuring import Row, medians
from mlxfp.models.attention import attend, bias_of, bias_within, earlier, nearby, positions_of, rotation_of, visible
from mlxfp.models.modernbert import ModernBert

Run = Callable[[], None]
_VOCABULARY = 2000


def rows(*, small: bool) -> list[Row]:
    """Compare attention, training steps of a decoder and of ModernBERT, and rows of twice the length."""
    repeats, scale = (1, 8) if small else (5, 1)
    return [
        *_attention(4096 // scale, 512 // scale, repeats),
        _decoder(2048 // scale, 256 // scale, repeats),
        _modernbert(2048 // scale, repeats),
        _doubled(2048 // scale, 256 // scale, repeats),
    ]


def _attention(length: int, longest: int, repeats: int) -> list[Row]:
    """Compute attention and its gradients for 4 heads of 64."""
    random = np.random.default_rng(0)
    inputs = [mx.array(random.standard_normal((1, 4, length, 64)).astype(np.float32)) for _ in range(3)]
    segments = _batch(1, length, longest)["segment_ids"]

    def total(queries: mx.array, keys: mx.array, values: mx.array, *, banded: bool) -> mx.array:
        hidden = mx.zeros((1, length, 1))
        whole = bias_of(mx.float32, visible(None, segments), earlier(length, length))
        bias = bias_within(hidden, None, segments, reach=longest - 1, causal=True) if banded else whole
        return attend(queries, keys, values, bias).square().sum()

    def run_of(*, banded: bool) -> Run:
        compiled = mx.compile(mx.value_and_grad(partial(total, banded=banded), argnums=(0, 1, 2)))
        return lambda: mx.eval(compiled(*inputs))

    runs = [run_of(banded=True), run_of(banded=False)]
    peaks = [_peak(run) for run in runs]
    ours, whole = medians(runs, repeats=repeats)
    work = f"attention and gradients, rows of {length:,}, documents to {longest}"
    return [
        Row("attention", work, f"{ours * 1000:.0f} ms", f"mask {whole * 1000:.0f} ms", whole / ours, 4),
        Row("attention", f"{work}: memory", _megabytes(peaks[0]), f"mask {_megabytes(peaks[1])}", peaks[0] / peaks[1], 0.45, "at most"),
    ]


def _decoder(length: int, longest: int, repeats: int) -> Row:
    """Train a decoder on packed rows."""
    batch = _batch(2, length, longest)
    losses = partial(fp.losses.causal_lm, longest=longest), fp.losses.causal_lm
    ours, whole = medians([_training(_language_model(length), loss, batch) for loss in losses], repeats=repeats)
    work = f"a step of a decoder, rows of {length:,}, documents to {longest}"
    return Row("attention", work, f"{ours * 1000:.0f} ms", f"mask {whole * 1000:.0f} ms", whole / ours, 2)


def _modernbert(length: int, repeats: int) -> Row:
    """Train ModernBERT, with blocks and with masks in the local layers."""
    config = fp.models.ModernBertConfig(
        vocab_size=_VOCABULARY, hidden_size=256, num_hidden_layers=8, num_attention_heads=4, intermediate_size=384
    )
    ids = _batch(1, length, length)["input_ids"]
    batch = {"input_ids": ids, "attention_mask": mx.ones_like(ids), "labels": mx.zeros((1,), mx.int32)}

    def loss(model: Any, batch: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
        return fp.losses.cross_entropy(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])

    bodies = ModernBert(config), _WithMasks(config)
    ours, whole = medians([_training(fp.models.Classifier(body, 2), loss, batch) for body in bodies], repeats=repeats)
    work = f"a step of ModernBERT, texts of {length:,}, window 128"
    return Row("attention", work, f"{ours * 1000:.0f} ms", f"masks {whole * 1000:.0f} ms", whole / ours, 1.3)


class _WithMasks(ModernBert):
    """ModernBERT with masks of the whole row: each local layer hides distant tokens by a bias."""

    def __call__(self, ids: mx.array, mask: Any = None, **_: Any) -> mx.array:
        config, length = self.config, ids.shape[1]
        hidden = self.tokens_norm(self.tokens(ids))
        seen = visible(mask, None)
        places = positions_of(mask, length)
        biases = [bias_of(hidden.dtype, seen), bias_of(hidden.dtype, seen, nearby(length, config.local_attention // 2))]
        bases = config.global_rope_theta, config.local_rope_theta
        rotations = [rotation_of(places, config.head_dim, base) for base in bases]
        for index, block in enumerate(self.blocks):
            local = bool(index % config.global_attn_every_n_layers)
            hidden = block(hidden, biases[local], rotations[local])
        encoded: mx.array = self.norm(hidden)
        return encoded


def _doubled(length: int, longest: int, repeats: int) -> Row:
    """Train a decoder on the same number of tokens in rows of the double length."""
    loss = partial(fp.losses.causal_lm, longest=longest)
    runs = [_training(_language_model(2 * length), loss, _batch(count, size, longest)) for count, size in ((1, 2 * length), (2, length))]
    double, single = medians(runs, repeats=repeats)
    work = f"a step of a decoder, rows of {2 * length:,}, documents to {longest}"
    return Row(
        "attention", work, f"{double * 1000:.0f} ms", f"rows of {length:,}: {single * 1000:.0f} ms", double / single, 1.15, "at most"
    )


def _language_model(length: int) -> Any:
    config = fp.models.configure("decoder", size="mini", vocab_size=_VOCABULARY, max_position_embeddings=length)
    return fp.models.CausalLM(fp.models.Decoder(config))


def _batch(count: int, length: int, longest: int) -> dict[str, mx.array]:
    """Return packed rows of documents with 8 to `longest` random tokens."""
    random = np.random.default_rng(0)
    documents = [
        random.integers(1, _VOCABULARY, size).tolist() for size in random.integers(8, longest + 1, 4 * count * length // longest + 8)
    ]
    packed = fp.pipe(fp.from_table({"input_ids": documents}), fp.pack(length + 1), fp.batch(count))
    return next(iter(fp.pipe(packed, fp.collate(fp.collators.causal(pad_id=0, packed=True, length=length)))))


def _training(model: Any, loss: Any, batch: dict[str, mx.array]) -> Run:
    """Return a function that runs a training step and waits for its result."""
    optimizer = fp.optimizers.adamw(1e-4)
    step, states = fp.train_step(model, loss, optimizer), [fp.train_state(model, optimizer)]

    def run() -> None:
        state, metrics = step(states.pop(), batch)
        mx.eval(state.params, metrics)
        states.append(state)

    run()  # compiles
    return run


def _peak(run: Run) -> int:
    """Return the peak memory of a second run, in bytes."""
    run()
    mx.clear_cache()
    mx.reset_peak_memory()
    run()
    return mx.get_peak_memory()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
