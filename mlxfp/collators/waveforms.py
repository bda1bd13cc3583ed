"""Audio collator: from waveforms to padded samples or spectrograms."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.collators.columns import (
    Choosing,
    Prepared,
    as_floats,
    as_view,
    at_row,
    names_of,
    numbers_of,
    ragged_of,
    vectors_of,
)
from mlxfp.collators.cutting import with_carried
from mlxfp.collators.labels import Classes, LabelKind, check_label, labels_of
from mlxfp.collators.padding import check_padding, pad_rows, padded_mask
from mlxfp.core.arrow.ragged import Ends, row_of
from mlxfp.core.chunks import Example, Schema
from mlxfp.core.examples import Examples
from mlxfp.core.row_names import PATH
from mlxfp.data.sound.features import log_mel
from mlxfp.data.sound.samples import Floats, as_samples
from mlxfp.data.sound.spectrograms import LogMel
from mlxfp.support.checks import as_strings, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError


@explain_call
def audio(  # noqa: PLR0913  # keyword-only, with defaults
    *,
    waveform: str = "waveform",
    rate: str | None = "rate",
    spectrogram: LogMel | None = None,
    features: str | None = None,
    label: str | None = None,
    label_kind: LabelKind = "class",
    classes: int | Sequence[str] | None = None,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    carry: Sequence[str] = (),
) -> "_Audio":
    """Return the collator for sound with a single channel.

    The column `waveform` contains lists or tensors [T] of floats or of 16-bit samples. Samples are divided by 32768. The batch contains:

    - `waveforms` float32[B, T]. If the argument `spectrogram` or `features` is given, `features` float32[B, T, mels] instead.
    - `lengths` int32[B]: number of samples or frames of each row.
    - `mask` int32[B, T]: 1 on samples or frames, and 0 on padding.
    - labels and columns of `carry`, as in `text`.

    The argument `features` names a column of spectrograms [T, mels] that `log_mel` computed before `batch`. Workers of
    `prefetch(workers=)` can then compute the spectrograms. The batch is the same as with `spectrogram`.

    If the argument `length` is given, T is `length`. If the argument `lengths` is given, T is the smallest of its numbers that fits all
    rows of the group. Otherwise, T is the length of the longest row, rounded up to `pad_multiple`. T counts samples, or frames of
    spectrograms. Padding is 0. Raises `DataError` for a longer waveform (shorten waveforms with `crop_waveforms`), and for integers beyond
    16 bits.

    `rate` names the column of sample rates, as from `read_audio`. If this column exists, all waveforms of a batch need the same rate,
    equal to the rate of `spectrogram`. Otherwise `DataError` names the first row with another rate, and its file. With `rate=None`, rates
    are not compared.

    >>> batch = audio()([{"waveform": [0.5, -0.5, 0.25]}, {"waveform": [1.0]}])
    >>> batch["waveforms"].tolist(), batch["lengths"].tolist()
    ([[0.5, -0.5, 0.25], [1.0, 0.0, 0.0]], [3, 1])
    >>> audio(spectrogram=LogMel(8000, size=200, hop=80, mels=20))([{"waveform": [0.5] * 800}])["features"].shape
    (1, 11, 20)

    See also: `log_mel`, `crop_waveforms`, `read_audio`.
    """
    check_text(waveform=waveform)
    check_types((str, type(None)), rate=rate)
    check_types((LogMel, type(None)), spectrogram=spectrogram)
    check_types((str, type(None)), features=features)
    if spectrogram is not None and features is not None:
        raise ArgumentError(f"features={features!r} already contains spectrograms. Remove spectrogram or features.")
    named = check_label(label, label_kind, classes)
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple)
    return _Audio(waveform, rate, spectrogram, features, label, label_kind, named, fixed, pad_multiple, as_strings("carry", carry))


@frozen(repr=False)
class _Audio(Choosing):
    waveform: str = "waveform"
    rate: str | None = "rate"
    spectrogram: LogMel | None = None
    features: str | None = None
    label: str | None = None
    label_kind: LabelKind = "class"
    classes: Classes = None
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    carry: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        return self._column, *names_of(self.label), *self.carry, *self.optional_columns

    @property
    def optional_columns(self) -> tuple[str, ...]:  # type: ignore[override]  # read only, as in the base class
        return *names_of(self.rate), PATH

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        view = as_view(examples)
        values, ends = _samples(view, self.waveform) if self.features is None else _spectra(view, self.features)
        self._check_rates(view)
        if self.spectrogram is not None:
            values, ends = self.spectrogram.frames(values, ends)
        at = partial(at_row, view, self._column, wanted_by=_NAME)
        real = padded_mask(ends, at, lengths=self.lengths, pad_multiple=self.pad_multiple, cut=self._cut())
        batch = {
            "waveforms" if values.ndim == 1 else "features": mx.array(pad_rows(values, real, 0)),
            "lengths": mx.array(np.diff(ends).astype(np.int32)),
            "mask": mx.array(real.astype(np.int32)),
        }
        if self.label is not None:
            batch["labels"] = mx.array(labels_of(view, self.label, self.label_kind, self.classes, _NAME))
        return with_carried(batch, view, self.carry, _NAME)

    def prepared(self, schema: Schema) -> Prepared | None:
        if self.spectrogram is None:
            return None
        stage: Any = log_mel(self.spectrogram, waveform=self.waveform, features=self.waveform, rate=self.rate)
        return Prepared((self.waveform,), (stage,), attrs.evolve(self, spectrogram=None, features=self.waveform))

    @property
    def _column(self) -> str:
        return self.waveform if self.features is None else self.features

    def _cut(self) -> str | None:
        """Return the remedy for long waveforms, such as "crop_waveforms(16000)". Return None if waveforms of any length are allowed."""
        if not self.lengths:
            return None
        if self.features is not None:
            return "crop_waveforms before log_mel"
        most = self.lengths[-1]
        return f"crop_waveforms({most if self.spectrogram is None else most * self.spectrogram.hop - 1})"

    def _check_rates(self, view: Examples) -> None:
        if self.rate not in view.names:
            return
        rates = numbers_of(view, self.rate, _NAME)
        wanted = rates[0] if self.spectrogram is None else self.spectrogram.rate
        wrong = np.flatnonzero(rates != wanted)
        if len(wrong):
            reference = "the first row of the group" if self.spectrogram is None else "the spectrogram"
            location, rate = at_row(view, self.rate, int(wrong[0]), _NAME), rates[wrong[0]]
            raise DataError(
                f"{location} holds {rate} samples per second, but the rate of {reference} is {wanted}. "
                f"Read all files at one rate: read_audio(folder, rate={wanted})."
            )


_NAME = "collators.audio"


def _spectra(view: Examples, name: str) -> tuple[Floats, Ends]:
    vectors, ends = vectors_of(view, name, _NAME)
    return as_floats(vectors, lambda at: at_row(view, name, row_of(ends, at // vectors.shape[1]), _NAME)), ends


def _samples(view: Examples, name: str) -> tuple[Floats, Ends]:
    """Return the concatenated samples of all waveforms, and the row bounds. Integers are scaled to -1 to 1."""
    values, ends = ragged_of(view, name, _NAME)
    if values.dtype == np.bool_ or view.column(name).type.value_type in (pa.int8(), pa.uint8()):
        raise SchemaError(f"{_NAME}: column {name!r} must hold floats or 16-bit samples, got {view.column(name).type}.")
    return as_samples(values, ends, partial(at_row, view, name, wanted_by=_NAME)), ends
