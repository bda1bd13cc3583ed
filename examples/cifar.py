"""Classify photographs with a residual convolutional network, trained on a folder of JPEG files.

    python examples/cifar.py --data cifar10

The folder contains a folder of JPEG files per class. Without --data, the files are synthetic (see synthetic.py). A fifth of the files,
stratified by class, is the test set. The test set is used once, after training. The loader and the training step are also timed
separately, in images per second. With 300 photographs of CIFAR-10, 30 per class, the accuracy on 60 test files is 0.32 for seed 0.
Guessing gives 0.1, and the whole data set has 50,000 photographs.
"""

import argparse
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlxfp as fp

fp.runtime.use_fast_blas()  # before the import of MLX: matrix products on Linux without a GPU become 20 times faster

import mlx.core as mx
from synthetic import write_photographs

SIDE = 32
SIZE = 32  # images per batch
TIMED = 30  # timed batches


def main() -> None:
    """Train, and print the accuracy on the test files."""
    options = _options()
    with TemporaryDirectory() as folder:
        path = options.data or Path(folder)
        if options.data is None:
            write_photographs(path, count=600, seed=0)
            print("No --data given: using 600 synthetic images instead of CIFAR-10 (see synthetic.py).\n")
        run(path, options.seed, options.epochs)


def run(path: Path, seed: int, epochs: int) -> None:
    """Train on four fifths of the files, and evaluate on the rest."""
    photographs = fp.read_images(path)
    classes = len({row["class"] for row in fp.pipe(photographs, fp.select_columns(["class"]))})
    train, test = fp.pipe(photographs, fp.split([0.8, 0.2], seed=seed, stratify="label"))
    normalization = fp.collators.NORMALIZATIONS["cifar10"]
    collate = fp.collate(fp.collators.vision(normalization=normalization, label="label", classes=classes))
    varied = fp.compose(
        fp.images.resize((SIDE, SIDE)),
        fp.images.random_crop((SIDE, SIDE), seed=seed, padding=4),
        fp.images.random_flip(seed=seed),
        fp.images.color_jitter(seed=seed, brightness=0.2, contrast=0.2, saturation=0.2),
    )
    batches = fp.pipe(train, fp.shuffle(seed=seed), varied, fp.batch(SIZE, drop_last=True), collate, fp.prefetch(4, workers=2))
    held_out = fp.pipe(test, fp.images.resize((SIDE, SIDE)), fp.batch(SIZE), collate)

    sizes: Any = (16, 32, 64)
    model = fp.models.ConvNet(fp.models.ConvNetConfig(outputs=classes, hidden_sizes=sizes), seed=seed)
    steps = epochs * (fp.length(batches) or 0)
    optimizer = fp.optimizers.adamw(fp.schedules.cosine_decay(2e-3, steps=steps, warmup=steps // 10), weight_decay=0.05)
    step, start = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=seed)

    end = fp.last(fp.pipe(fp.fit(step, start, batches, epochs=epochs), fp.observers.progress()))
    accuracy = fp.evaluate(model, measure)(end.state, held_out)["accuracy"]
    print(f"seed {seed}: test accuracy {accuracy:.3f} on {fp.length(test)} images of {classes} classes, {end.step} steps")

    repeated = fp.pipe(train, fp.repeat(None), varied, fp.batch(SIZE), collate)
    loaded = rate(islice(repeated, TIMED + 1))
    batch = next(iter(repeated))
    trained = rate(_trained(step, end.state, batch))
    print(f"loader alone: {loaded:,.0f} images/s in one thread; training step alone: {trained:,.0f} images/s")


def rate(batches: Iterable[Any]) -> float:
    """Return the number of images per second, without the first batch."""
    batches = iter(batches)
    next(batches)
    began = time.perf_counter()
    return sum(1 for _ in batches) * SIZE / (time.perf_counter() - began)


def _trained(step: Any, state: Any, batch: dict[str, Any]) -> Iterable[None]:
    for _ in range(TIMED + 1):
        state, metrics = step(state, batch)
        mx.eval(state.params, metrics)
        yield


def loss(model: Any, batch: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Return the sum of the cross-entropies and the number of examples."""
    return fp.losses.cross_entropy(model(batch["images"]), batch["labels"])


def measure(model: Any, batch: dict[str, Any]) -> dict[str, tuple[mx.array, mx.array]]:
    """Return the accuracy on a batch, as a sum and a count."""
    return {"accuracy": fp.metrics.accuracy(model(batch["images"]), batch["labels"])}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with a folder of JPEG files for each class")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, the weights and the order (default 0)")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images (default 30)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
