"""Train a small causal language model on the help texts that every Python carries.

    python examples/language_model.py

A byte-level BPE tokenizer is trained on nine tenths of the topics of `help()`; the others are for validation. The texts become one stream
of tokens, cut into windows; labels are the inputs shifted by one. The model has learned something once its validation loss is below the
entropy of the single tokens: no model that ignores the context can do better than that. Any `mlx.nn` module can be trained; this one is
written out below.
"""

import argparse
from pydoc_data.topics import topics
from typing import Any

import mlxfp as fp

fp.runtime.use_fast_blas()  # before MLX is imported: on Linux without a GPU, matrix products are 20 times faster

import mlx.core as mx
import numpy as np
from mlx import nn

LENGTH = 128


def main() -> None:
    """Train, and print the validation loss beside the entropy of single tokens."""
    steps = _options().steps
    texts = fp.from_examples([{"topic": name, "text": topics[name]} for name in sorted(topics)])
    train, valid = fp.pipe(texts, fp.split([0.9, 0.1], seed=0))
    tokenizer = fp.train_tokenizer(train, kind="bpe", vocab_size=2000)

    stream = fp.compose(
        fp.tokenize(tokenizer, special=False),
        fp.windows(LENGTH + 1, stride=LENGTH, separator=tokenizer.sep_id, drop_last=True),
    )
    collate = fp.collate(fp.collators.causal(pad_id=tokenizer.pad_id))
    batches = fp.pipe(train, stream, fp.load(), fp.shuffle(seed=0), fp.repeat(None), fp.batch(16), collate, fp.prefetch(2))
    held_out = fp.pipe(valid, stream, fp.batch(16), collate)

    model = Transformer(tokenizer.vocab_size, width=128, depth=2, heads=4)
    optimizer = fp.optimizers.adamw(fp.schedules.cosine_decay(2e-3, steps=steps, warmup=steps // 10), weight_decay=0.1)
    check = fp.evaluate(model, lambda model, batch: {"loss": loss(model, batch)})
    start = fp.train_state(model, optimizer)
    before = check(start, held_out)["loss"]
    step = fp.train_step(model, loss, optimizer, clip_norm=1.0)
    end = fp.last(fp.pipe(fp.fit(step, start, batches, steps=steps), fp.observers.progress()))
    after = check(end.state, held_out)["loss"]
    unigram = entropy(held_out)
    print(f"validation loss {before:.2f} before, {after:.2f} after {steps} steps; entropy of single tokens {unigram:.2f} (nats a token)")


def loss(model: Any, batch: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Sum of the cross entropies of the next tokens, and how many there are."""
    return fp.losses.cross_entropy(model(batch["input_ids"]), batch["labels"])


def entropy(batches: Any) -> float:
    """Return the entropy of the labels by themselves, in nats: what a model that ignores the context reaches at best."""
    labels = np.concatenate([np.array(batch["labels"]).ravel() for batch in batches])
    shares = np.unique(labels[labels >= 0], return_counts=True)[1] / (labels >= 0).sum()
    return float(-(shares * np.log(shares)).sum())


class Transformer(nn.Module):
    """Token and position embeddings, pre-norm blocks with causal attention, and the embedding again as output."""

    def __init__(self, vocabulary: int, *, width: int, depth: int, heads: int) -> None:
        """Make the layers."""
        super().__init__()  # type: ignore[no-untyped-call]  # MLX has no types for its modules
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(LENGTH, width)
        self.blocks = [nn.TransformerEncoderLayer(width, heads, norm_first=True) for _ in range(depth)]
        self.norm = nn.LayerNorm(width)

    def __call__(self, ids: mx.array) -> mx.array:
        """Score the next token after each one: float[B, L, V] of int[B, L]."""
        length = ids.shape[1]
        hidden = self.tokens(ids) + self.positions(mx.arange(length))
        mask = nn.MultiHeadAttention.create_additive_causal_mask(length)
        for block in self.blocks:
            hidden = block(hidden, mask)
        scores: mx.array = self.tokens.as_linear(self.norm(hidden))
        return scores


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="updates (default 200)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
