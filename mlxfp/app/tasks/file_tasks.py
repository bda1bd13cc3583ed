"""Tasks on files: classification of images or sounds with one file per row, and language models of texts.

A task object holds everything needed for prediction, such as the class order, and creates batches, a model and a training goal.
The data folder has a folder `train` and a folder `valid` (or `val`, `test`). Without these, a tenth of the rows is used for validation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from mlx import nn

from mlxfp import (
    Dataset,
    Splits,
    Tokenizer,
    cache,
    filter_by,
    language_model_batches,
    length,
    read_audio,
    read_csv,
    read_images,
    read_text,
    rename_columns,
    select,
    select_columns,
    take,
    train_valid_batches,
    train_valid_test,
)
from mlxfp.app.kaggle.specs.reading import TYPED, delimiter_of
from mlxfp.app.tasks.objectives import Loss, Objective
from mlxfp.audio import crop_waveforms
from mlxfp.collators import NORMALIZATIONS, Collator, LogMel, audio, vision
from mlxfp.losses import causal_lm, cross_entropy
from mlxfp.metrics import perplexity
from mlxfp.models import CONVNET_SIZES, ConvNet, ConvNetConfig, create
from mlxfp.support.errors import FEW, ArgumentError, DataError, listed
from mlxfp.support.file_formats import with_compressions
from mlxfp.support.randomness import fold_in, generator

_VALID = ("valid", "val", "validation", "test")  # possible names of the folder with validation rows
# Readers by suffix. Files with other suffixes are read as lines.
_READERS = {**dict.fromkeys(with_compressions(".csv", ".tsv"), read_csv), **TYPED}


@frozen
class FileClasses:
    """Task of classifying files with a `ConvNet` that has `channels` input channels."""

    classes: tuple[str, ...]
    channels: ClassVar[int]

    def to_predict(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Return the rows with the same preprocessing as for validation."""
        return rows

    def model(self, size: str, *, dropout: float | None, seed: int) -> nn.Module:
        """Create a `ConvNet`. Raise `ArgumentError` for an unknown size."""
        if size not in CONVNET_SIZES:
            raise ArgumentError(f"model.size of a ConvNet must be one of {', '.join(CONVNET_SIZES)}, got {size!r}.")
        settings: dict[str, Any] = {**CONVNET_SIZES[size], **({} if dropout is None else {"dropout": dropout})}
        return ConvNet(ConvNetConfig(outputs=len(self.classes), num_channels=self.channels, **settings), seed=seed)

    @property
    def goal(self) -> Objective:
        """Training goal."""
        return Objective("class", absolute=False)


@frozen
class Pictures(FileClasses):
    """Task of classifying images, resized to `side` x `side` pixels.

    >>> Pictures(("cat", "dog"), side=32).model("tiny", dropout=None, seed=0).config.outputs
    2
    """

    side: int
    channels = 3

    def batches(self, parts: Splits, *, size: int, seed: int, folder: str | None) -> Splits:
        """Convert images to batches. The argument `parts` holds the training and validation rows, as read by `read_images`."""
        return train_valid_batches(parts, self.collator("label"), size=size, seed=seed, prefetched=0)

    def collator(self, label: str | None) -> Collator:
        """Return the collator of image batches: `images` float32[B, side, side, 3], and `labels` if `label` names a column."""
        return vision(
            mode="rgb",
            size=(self.side, self.side),
            normalization=NORMALIZATIONS["imagenet"],
            label=label,
            classes=len(self.classes) if label else None,
        )

    def rows(self, path: str) -> Dataset[Any]:
        """Read the images of a folder."""
        return read_images(path)


@frozen
class Sounds(FileClasses):
    """Task of classifying sounds by log-mel spectrograms. The sample rate is `rate` samples per second.

    Sounds longer than `seconds` are cropped: to a random position in each epoch for training, to the middle for validation.

    >>> Sounds(("dog", "rain"), rate=8000, seconds=1.0, mels=20).collator(None)([{"waveform": [0.5] * 800}])["features"].shape
    (1, 101, 20)
    """

    rate: int
    seconds: float
    mels: int
    channels = 1

    def batches(self, parts: Splits, *, size: int, seed: int, folder: str | None) -> Splits:
        """Convert sounds to batches. The argument `parts` holds the training and validation rows, as read by `read_audio`."""
        if folder is not None:
            keep = cache(folder)
            parts = Splits(keep(parts.train), valid=None if parts.valid is None else keep(parts.valid))
        cut = crop_waveforms(self._samples, seed=seed)
        parts = Splits(cut(parts.train), valid=None if parts.valid is None else self.to_predict(parts.valid))
        return train_valid_batches(parts, self.collator("label"), size=size, seed=seed, prefetched=0)

    def collator(self, label: str | None) -> Collator:
        """Return the collator of spectrogram batches: `features` float32[B, T, mels], and `labels` if `label` names a column."""
        spectrogram = LogMel(self.rate, size=self.rate // 40, hop=self.rate // 100, mels=self.mels)
        frames = 1 + self._samples // spectrogram.hop
        return audio(spectrogram=spectrogram, length=frames, label=label, classes=len(self.classes) if label else None)

    def rows(self, path: str) -> Dataset[Any]:
        """Read the sounds of a folder at the sample rate of this task."""
        return read_audio(path, rate=self.rate)

    def to_predict(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Crop the middle of each sound."""
        return crop_waveforms(self._samples)(rows)

    @property
    def _samples(self) -> int:
        return int(self.rate * self.seconds)


@frozen(eq=False)
class LanguageModel:
    """Task of predicting the next token of texts. Each training sequence has `length` tokens."""

    tokenizer: Tokenizer
    length: int

    def batches(self, parts: Splits, *, size: int, seed: int, folder: str | None) -> Splits:
        """Return training and validation batches of texts."""
        return language_model_batches(parts, self.tokenizer, length=self.length, size=size, seed=seed, path=folder, prefetched=0)

    def model(self, size: str, *, dropout: float | None, seed: int) -> nn.Module:
        """Create a decoder."""
        tokens: Any = {"vocab_size": self.tokenizer.vocab_size, "max_position_embeddings": self.length}
        return create("decoder", size=size, head="causal_lm", dropout=dropout, seed=seed, **tokens)

    @property
    def goal(self) -> "NextToken":
        """Training goal."""
        return NextToken()


@frozen
class NextToken:
    """Loss and metrics of a language model. `own` replaces the loss by a function of (logits, labels)."""

    own_loss: Loss | None = None

    def loss(self, model: Any, batch: Any) -> Any:
        """Return the cross entropy of the next tokens."""
        if self.own_loss is not None:
            return self.own_loss(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        return causal_lm(model, batch)

    def measure(self, model: Any, batch: Any) -> dict[str, Any]:
        """Return the loss and the perplexity."""
        logits = model(batch["input_ids"], batch["attention_mask"])
        return {"loss": cross_entropy(logits, batch["labels"]), "perplexity": perplexity(logits, batch["labels"])}


def read_texts(path: str, column: str) -> Dataset[Any]:
    """Read texts into the column `text`. JSON lines, CSV and Parquet files have the texts in `column`. In other files, a line is a text."""
    folder = Path(path)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()] if folder.is_dir() else [folder]
    readers = ((read, file) for suffix, read in _READERS.items() for file in files if file.name.lower().endswith(suffix))
    read, first = next(readers, (None, folder))
    if read is None:
        return filter_by([("text", "!=", "")])(read_text(path))
    return as_texts(read_csv(path, delimiter=delimiter_of(first)) if read is read_csv else read(path), column)


def as_texts(rows: Dataset[Any], column: str) -> Dataset[Any]:
    """Return only one text column, renamed to `text`, without empty texts."""
    texts = select_columns([column])(rows)
    return filter_by([("text", "!=", "")])(texts if column == "text" else rename_columns({column: "text"})(texts))


def read_parts(path: str, read: Callable[[str], Dataset[Any]], *, seed: int, limit: int | None = None) -> tuple[Splits, tuple[str, ...]]:
    """Read the training and validation rows of a folder. Return the rows and the names of class folders.

    Without a folder `train`, a tenth of the rows of each class is used for validation. `limit` is the maximum number of training rows.
    Raises `DataError` for a folder `train` without a validation folder, and for different classes in training and validation rows.
    """
    folder, other = Path(path), None
    if (folder / "train").is_dir():
        other = next((folder / name for name in _VALID if (folder / name).is_dir()), None)
        if other is None:
            raise DataError(
                f"The folder {path!r} has a folder train, but no folder for validation. "
                f"Add a folder with one of these names: {', '.join(_VALID)}."
            )
        path = str(folder / "train")
    rows = read(path)
    classes = _classes(rows)
    if other is None:
        parts = train_valid_test(rows, seed=seed, stratify="label" if classes else None)
    else:
        parts = Splits(rows, valid=read(str(other)))
        if (valid_classes := _classes(parts.valid)) != classes:
            raise DataError(
                f"The class folders differ: {listed(classes, most=FEW)} in {path!r}, and {listed(valid_classes, most=FEW)} in "
                f"{str(other)!r}. Create the same class folders for training and validation."
            )
    return limited(parts, limit, seed=seed), classes


def limited(parts: Splits, limit: int | None, *, seed: int) -> Splits:
    """Keep at most `limit` training rows, drawn with `seed`. If the number of rows is unknown, keep the first rows."""
    count = length(parts.train)
    if limit is None or (count is not None and limit >= count):
        return parts
    if count is None:
        return Splits(take(limit)(parts.train), valid=parts.valid)
    chosen = np.sort(generator(fold_in(0, "limit", seed)).permutation(count)[:limit])
    return Splits(select(chosen)(parts.train), valid=parts.valid)


def check_classes(classes: tuple[str, ...], task: str, path: str) -> tuple[str, ...]:
    """Raise `DataError` for fewer than two class folders."""
    if len(classes) < 2:
        raise DataError(
            f"A run with task={task} takes the classes of files from the folder names, got {len(classes)} class folders in "
            f"{path!r}. Create a folder per class, as in cat/1.png and dog/1.png."
        )
    return classes


def _classes(rows: Dataset[Any] | None) -> tuple[str, ...]:
    return tuple(getattr(rows.source, "labels", ())) if rows is not None else ()
