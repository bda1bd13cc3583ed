"""Tasks whose rows are files in a folder: classes of pictures or of sounds, and a language model of texts.

Each is a value with all that a prediction needs, such as the classes in the order of the outputs, and makes batches, a model and what to
learn. The folder has a part for training and one for validation (`train`, and `valid`, `val` or `test`), or else a tenth validates.
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
from mlxfp.app.kaggle.specs.reading import TYPED
from mlxfp.app.tasks.objectives import Loss, Objective
from mlxfp.audio import crop_waveforms
from mlxfp.collators import NORMALIZATIONS, Collator, LogMel, audio, vision
from mlxfp.losses import causal_lm, cross_entropy
from mlxfp.metrics import perplexity
from mlxfp.models import CONVNET_SIZES, ConvNet, ConvNetConfig, create
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.file_formats import with_compressions
from mlxfp.support.randomness import fold_in, generator

_VALID = ("valid", "val", "validation", "test")  # names of the folder that validates
_READERS = {**dict.fromkeys(with_compressions(".csv"), read_csv), **TYPED}  # of texts in a column; other files are texts themselves


@frozen
class FileClasses:
    """Classes of files, for a `ConvNet` of pictures of so many `channels`."""

    classes: tuple[str, ...]
    channels: ClassVar[int]

    def to_predict(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Return the rows as they are read for validation and for predictions."""
        return rows

    def model(self, size: str, *, dropout: float | None, seed: int) -> nn.Module:
        """Make a `ConvNet`; raises `ArgumentError` for an unknown size."""
        if size not in CONVNET_SIZES:
            raise ArgumentError(f"A ConvNet has the sizes {', '.join(CONVNET_SIZES)}, got model.size={size!r}. Choose one.")
        settings: dict[str, Any] = {**CONVNET_SIZES[size], **({} if dropout is None else {"dropout": dropout})}
        return ConvNet(ConvNetConfig(outputs=len(self.classes), num_channels=self.channels, **settings), seed=seed)

    @property
    def goal(self) -> Objective:
        """What to learn."""
        return Objective("class", absolute=False)


@frozen
class Pictures(FileClasses):
    """Classes of pictures, which are resized to `side` x `side`.

    >>> Pictures(("cat", "dog"), side=32).model("tiny", dropout=None, seed=0).config.outputs
    2
    """

    side: int
    channels = 3

    def batches(self, parts: Splits, *, size: int, seed: int, prefetched: int) -> Splits:
        """Make batches of the parts of `read_images`, to train and to evaluate with."""
        return train_valid_batches(parts, self.collator("label"), size=size, seed=seed, prefetched=prefetched)

    def collator(self, label: str | None) -> Collator:
        """Return the collator: `images` float32[B, side, side, 3], and `labels` where a column has them."""
        return vision(
            mode="rgb",
            size=(self.side, self.side),
            normalization=NORMALIZATIONS["imagenet"],
            label=label,
            classes=len(self.classes) if label else None,
        )

    def rows(self, path: str) -> Dataset[Any]:
        """Read the pictures in a folder."""
        return read_images(path)


@frozen
class Sounds(FileClasses):
    """Classes of sounds: the log-mel spectrogram of `seconds` of each, at `rate` samples per second.

    Training takes another cut of a longer sound in each epoch, validation the middle.

    >>> Sounds(("dog", "rain"), rate=8000, seconds=1.0, mels=20).collator(None)([{"waveform": [0.5] * 800}])["features"].shape
    (1, 101, 20)
    """

    rate: int
    seconds: float
    mels: int
    channels = 1

    def batches(self, parts: Splits, *, size: int, seed: int, prefetched: int) -> Splits:
        """Make batches of the parts of `read_audio`, to train and to evaluate with."""
        cut = crop_waveforms(self._samples, seed=seed)
        parts = Splits(cut(parts.train), valid=None if parts.valid is None else self.to_predict(parts.valid))
        return train_valid_batches(parts, self.collator("label"), size=size, seed=seed, prefetched=prefetched)

    def collator(self, label: str | None) -> Collator:
        """Return the collator: `features` float32[B, T, mels], and `labels` where a column has them."""
        spectrogram = LogMel(self.rate, size=self.rate // 40, hop=self.rate // 100, mels=self.mels)
        frames = 1 + self._samples // spectrogram.hop
        return audio(spectrogram=spectrogram, length=frames, label=label, classes=len(self.classes) if label else None)

    def rows(self, path: str) -> Dataset[Any]:
        """Read the sounds in a folder, at the rate of this task."""
        return read_audio(path, rate=self.rate)

    def to_predict(self, rows: Dataset[Any]) -> Dataset[Any]:
        """Return the middle of each sound."""
        return crop_waveforms(self._samples)(rows)

    @property
    def _samples(self) -> int:
        return int(self.rate * self.seconds)


@frozen(eq=False)
class LanguageModel:
    """The next token of texts, in rows of `length` tokens."""

    tokenizer: Tokenizer
    length: int

    def batches(self, parts: Splits, *, size: int, seed: int, prefetched: int) -> Splits:
        """Make batches of the parts of texts, to train and to evaluate with."""
        return language_model_batches(parts, self.tokenizer, length=self.length, size=size, seed=seed)

    def model(self, size: str, *, dropout: float | None, seed: int) -> nn.Module:
        """Make a decoder."""
        tokens: Any = {"vocab_size": self.tokenizer.vocab_size, "max_position_embeddings": self.length}
        return create("decoder", size=size, head="causal_lm", dropout=dropout, seed=seed, **tokens)

    @property
    def goal(self) -> "NextToken":
        """What to learn."""
        return NextToken()


@frozen
class NextToken:
    """The loss and the metrics of a language model; `own` is another loss, of (logits, labels)."""

    own: Loss | None = None

    def loss(self, model: Any, batch: Any) -> Any:
        """Return the cross entropy of the next tokens."""
        if self.own is not None:
            return self.own(model(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        return causal_lm(model, batch)

    def measure(self, model: Any, batch: Any) -> dict[str, Any]:
        """Return the loss, and the perplexity."""
        logits = model(batch["input_ids"], batch["attention_mask"])
        return {"loss": cross_entropy(logits, batch["labels"]), "perplexity": perplexity(logits, batch["labels"])}


def read_texts(path: str, column: str) -> Dataset[Any]:
    """Read texts, of files with a suffix of JSON lines, CSV or Parquet from a column, of others the lines; the column is then `text`."""
    place = Path(path)
    names = [file.name for file in sorted(place.rglob("*")) if file.is_file()] if place.is_dir() else [path]
    read = next((read for suffix, read in _READERS.items() if any(name.lower().endswith(suffix) for name in names)), None)
    return filter_by([("text", "!=", "")])(read_text(path)) if read is None else as_texts(read(path), column)


def as_texts(rows: Dataset[Any], column: str) -> Dataset[Any]:
    """Return a column of texts alone, as `text`, without empty ones."""
    texts = select_columns([column])(rows)
    return filter_by([("text", "!=", "")])(texts if column == "text" else rename_columns({column: "text"})(texts))


def read_parts(path: str, read: Callable[[str], Dataset[Any]], *, seed: int, limit: int | None = None) -> tuple[Splits, tuple[str, ...]]:
    """Read the part of a folder that trains and the one that validates, and the names of the class folders, if there are any.

    Without such parts, a tenth of the rows validates, of each class. `limit` is that of `limited`. Raises `DataError` for a folder `train`
    without one that validates, and for parts of different classes.
    """
    place, other = Path(path), None
    if (place / "train").is_dir():
        other = next((place / name for name in _VALID if (place / name).is_dir()), None)
        if other is None:
            raise DataError(f"The folder {path!r} has a part to train on and none to validate with. Add one of {', '.join(_VALID)}.")
        path = str(place / "train")
    rows = read(path)
    classes = _classes(rows)
    if other is None:
        parts = train_valid_test(rows, seed=seed, stratify="label" if classes else None)
    else:
        parts = Splits(rows, valid=read(str(other)))
        if (found := _classes(parts.valid)) != classes:
            raise DataError(
                f"The parts have other classes: {', '.join(classes)} in {path!r}, and {', '.join(found)} in {str(other)!r}. Give both the "
                "same class folders."
            )
    return limited(parts, limit, seed=seed), classes


def limited(parts: Splits, limit: int | None, *, seed: int) -> Splits:
    """Keep at most `limit` training rows, drawn by `seed`, or the first ones where it is not known how many there are."""
    count = length(parts.train)
    if limit is None or (count is not None and limit >= count):
        return parts
    if count is None:
        return Splits(take(limit)(parts.train), valid=parts.valid)
    chosen = np.sort(generator(fold_in(0, "limit", seed)).permutation(count)[:limit])
    return Splits(select(chosen)(parts.train), valid=parts.valid)


def check_classes(classes: tuple[str, ...], what: str, path: str) -> tuple[str, ...]:
    """Raise `DataError` unless there are at least two class folders."""
    if len(classes) < 2:
        raise DataError(
            f"A run with task={what} learns the classes of files from the names of their folders, got {len(classes)} such folders in "
            f"{path!r}. Make one for each class, as in cat/1.png and dog/1.png."
        )
    return classes


def _classes(rows: Dataset[Any] | None) -> tuple[str, ...]:
    return tuple(getattr(rows.source, "classes", ())) if rows is not None else ()
