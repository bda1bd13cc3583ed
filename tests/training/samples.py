"""Small modules, steps and data for the tests of training. Everything is tiny: compiling takes longer than running."""

import mlx.core as mx
import numpy as np
from mlx import nn

import mlxfp as fp
from mlxfp.data.lengths.batching import batch
from mlxfp.models.layers import draw_weights


class Net(nn.Module):
    """Two linear layers, and between them batch normalisation with its buffers and MLX's own dropout."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.norm = nn.BatchNorm(8)
        self.dropout = nn.Dropout(rate)
        self.last = nn.Linear(8, 2)

    def __call__(self, x):
        return self.last(self.dropout(nn.relu(self.norm(self.first(x)))))


def net(seed=0, rate=0.5):
    """A `Net` whose weights depend on the seed alone."""
    model = Net(rate)
    for place, layer in enumerate([model.first, model.last]):
        layer.weight = mx.random.normal(layer.weight.shape, key=mx.random.key(2 * seed + place))
        layer.bias = mx.zeros_like(layer.bias)
    return model


class Block(nn.Module):
    """Half of a transformer's block: with normalisation, MLX's own dropout, and an addition."""

    def __init__(self, rate):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.inner, self.outer = nn.Linear(8, 32), nn.Linear(32, 8)
        self.dropout = nn.Dropout(rate)

    def __call__(self, x):
        return x + self.dropout(self.outer(nn.gelu(self.inner(self.norm(x)))))


class Deep(nn.Module):
    """Blocks in a list; every row is computed alone, so any partition of a batch gives the same."""

    def __init__(self, rate=0.5, depth=3):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.blocks = [Block(rate) for _ in range(depth)]

    def __call__(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def deep(rate=0.5, depth=3, seed=0):
    """A `Deep` whose weights depend on the seed alone."""
    model = Deep(rate, depth)
    draw_weights(model, seed)
    return model


def loss(model, batch):
    return fp.losses.cross_entropy(model(batch["x"]), batch["label"])


def setting(*, seed=0, rate=0.5, optimizer=None, model=None, **options):
    """A step with options of `train_step`, and its first state."""
    model, optimizer = model or net(seed, rate), optimizer or fp.optimizers.adamw(0.01)
    return fp.train_step(model, loss, optimizer, **options), fp.train_state(model, optimizer, seed=seed)


def group(size=6, seed=0):
    """A batch, with text that it carries."""
    x = np.random.default_rng(seed).normal(size=(size, 3)).astype(np.float32)
    return {"x": mx.array(x), "label": mx.array((x.sum(axis=1) > 0).astype(np.int32)), "name": tuple("abcdefghijkl"[:size])}


def stacked(examples):
    x = mx.array(np.array([example["x"] for example in examples], np.float32))
    return {"x": x, "label": mx.array([example["label"] for example in examples]), "name": tuple(example["name"] for example in examples)}


def dataset(count=12, size=4):
    """Shuffled batches of three sizes of number and a label."""
    x = np.random.default_rng(0).normal(size=(count, 3))
    rows = [{"x": row.tolist(), "label": int(row.sum() > 0), "name": f"row {place}"} for place, row in enumerate(x)]
    return fp.pipe(fp.from_examples(rows), fp.shuffle(seed=0), batch(size), fp.collate(stacked))
