"""Classify handwritten digits with a small convolutional network, trained on batches of NumPy images.

    python examples/mnist.py --data mnist

The folder contains t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz, the 10,000 test images of MNIST. Without --data, the digits
are synthetic (see synthetic.py). A fifth of the images, stratified by digit, is for validation. On MNIST, the accuracy is 0.983 to 0.986
for the seeds 0 to 2, after 20 seconds of processor time per seed.
"""

import argparse
import gzip
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlxfp as fp

fp.runtime.use_fast_blas()  # before the import of MLX: matrix products on Linux without a GPU become 20 times faster

import mlx.core as mx
import numpy as np
from mlx import nn
from synthetic import write_digits


def main() -> None:
    """Train, and print the accuracy on the validation images."""
    options = _options()
    with TemporaryDirectory() as folder:
        path = options.data or Path(folder)
        if options.data is None:
            write_digits(path, count=2000, seed=0)
            print("No --data given: using 2,000 synthetic digits instead of MNIST (see synthetic.py).\n")
        images, labels = (read_idx(path / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    run(images, labels, options.seed, options.epochs)


def run(images: np.ndarray, labels: np.ndarray, seed: int, epochs: int) -> None:
    """Train on four fifths of the images, uint8[N, 28, 28], and evaluate on the rest after every epoch."""
    rows = [{"image": image, "digit": int(label)} for image, label in zip(images, labels, strict=True)]
    train, valid = fp.pipe(fp.from_examples(rows), fp.split([0.8, 0.2], seed=seed, stratify="digit"))
    collate = fp.collate(fp.collators.vision(normalization=fp.collators.NORMALIZATIONS["mnist"], label="digit", classes=10))
    batches = fp.pipe(train, fp.shuffle(seed=seed), fp.batch(64, drop_last=True), collate, fp.prefetch(2))
    held_out = fp.pipe(valid, fp.batch(200), collate)

    mx.random.seed(seed)  # MLX layers draw initial weights from the global generator
    model = network()
    steps = epochs * (fp.length(batches) or 0)
    optimizer = fp.optimizers.adamw(fp.schedules.cosine_decay(4e-3, steps=steps, warmup=steps // 20))
    step, start = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=seed)
    check = fp.evaluate(model, measure)

    began = time.process_time()
    validate = fp.observers.evaluate_every(lambda state: check(state, held_out))
    end = fp.last(fp.pipe(fp.fit(step, start, batches, epochs=epochs), validate, fp.observers.progress()))
    accuracy = check(end.state, held_out)["accuracy"]
    seconds = time.process_time() - began
    print(
        f"seed {seed}: accuracy {accuracy:.4f} on {len(images) // 5:,} held-out images, {end.step} steps, {seconds:.0f} s of processor time"
    )


def network() -> nn.Module:
    """Return a network float[B, 28, 28, 1] to float[B, 10]: two convolutions, each followed by max pooling, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.relu,
        nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.relu,
        nn.MaxPool2d(2, 2),
        partial(mx.flatten, start_axis=1),
        nn.Dropout(0.3),
        nn.Linear(7 * 7 * 32, 10),
    )


def loss(model: Any, batch: dict[str, Any]) -> tuple[mx.array, mx.array]:
    """Return the sum of the cross-entropies and the number of examples."""
    return fp.losses.cross_entropy(model(batch["images"]), batch["labels"])


def measure(model: Any, batch: dict[str, Any]) -> dict[str, tuple[mx.array, mx.array]]:
    """Return the accuracy on a batch, as a sum and a count."""
    return {"accuracy": fp.metrics.accuracy(model(batch["images"]), batch["labels"])}


def read_idx(path: Path) -> np.ndarray:
    """Read a file in MNIST's IDX format: the number of axes, the length of each axis, and the bytes."""
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(np.frombuffer(data, ">i4", axes, 4))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with the images and labels of MNIST's test set")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split, the weights and the order (default 0)")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default 8)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
