"""Log-mel spectrograms of many waveforms at once, in numpy.

A frame is computed in the same way whatever the other frames are, so neither padding nor batching changes a bit of the result. That rules
out a matrix product with the filters: BLAS rounds differently for different numbers of rows. Filters are triangles between neighbouring
points, so a frequency belongs to two of them at most, and sums over the ranges between the points are enough.
"""

from functools import cached_property
from typing import Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.collators.padding import pad_rows, real_places
from mlxfp.core.arrow.ragged import Ends, ends_of, places_within
from mlxfp.core.checks import check_choice, check_positive, check_types
from mlxfp.core.errors import ArgumentError

Floats = NDArray[np.float32]

_FRAMES_AT_ONCE = 1024  # the arrays of this many frames fit in the processor's cache


@frozen
class LogMel:
    """A log-mel spectrogram: how loud each of `mels` bands of pitch is, every `hop` samples.

    `rate` is in samples per second. A frame is `size` samples under a periodic Hann window, centred on multiples of `hop`, with zeros
    around the waveform; a waveform of n samples has 1 + n // hop frames. The defaults are 25 ms every 10 ms at 16 kHz. Bands lie between
    `low` and `high` Hz (None: half of `rate`). Values are natural logarithms of power, at least log(1e-10).

    scale="slaney" spaces bands and gives them equal area as Slaney's Auditory Toolbox (1998) and `librosa` do; "htk" spaces them by
    2595 log10(1 + f / 700) and gives them equal height, as the HTK Book (2006) and `torchaudio` do; for both of these libraries with
    `power=2.0` and `pad_mode="constant"`.

    >>> LogMel(8000, size=200, hop=80, mels=20)
    LogMel(rate=8000, size=200, hop=80, mels=20, low=0.0, high=None, scale='slaney')
    """

    rate: int
    size: int = field(default=400, kw_only=True)
    hop: int = field(default=160, kw_only=True)
    mels: int = field(default=80, kw_only=True)
    low: float = field(default=0.0, kw_only=True)
    high: float | None = field(default=None, kw_only=True)
    scale: Literal["slaney", "htk"] = field(default="slaney", kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_positive(rate=self.rate, size=self.size, hop=self.hop, mels=self.mels)
        check_types((int, float), low=self.low)
        check_types((int, float, type(None)), high=self.high)
        check_choice(("slaney", "htk"), scale=self.scale)
        if not 0 <= self.low < self.top <= self.rate / 2:
            raise ArgumentError(f"Bands lie between 0 and {self.rate / 2} Hz, half the rate; got low={self.low} and high={self.top}.")
        empty = np.flatnonzero(self._sums(np.ones((1, self.size // 2 + 1), np.float32))[0] == 0)
        if len(empty):
            raise ArgumentError(
                f"mels={self.mels} bands are too narrow for size={self.size} at {self.rate} Hz: band {empty[0]} holds no frequency. "
                "Give fewer bands or a larger size."
            )

    @property
    def top(self) -> float:
        """Where the highest band ends, in Hz."""
        return self.rate / 2 if self.high is None else self.high

    def frames(self, values: Floats, ends: Ends) -> tuple[Floats, Ends]:
        """Return the frames of all waveforms, end to end, float32[frames, mels], and their ends, int64[B + 1].

        `values` are the samples of all waveforms, end to end, and `ends` where those of each waveform end, int64[B + 1].
        """
        lengths = ends[1:] - ends[:-1]
        counts = np.where(lengths > 0, 1 + lengths // self.hop, 0)
        frame_ends = ends_of(counts)
        waveforms = pad_rows(values, real_places(ends, int(lengths.max()), "right"), 0)
        padded = np.pad(waveforms, ((0, 0), (self.size // 2, self.size - self.size // 2)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=1)[:, :: self.hop]
        rows, within = np.repeat(np.arange(len(lengths)), counts), places_within(counts)
        out = np.empty((len(rows), self.mels), np.float32)
        for first in range(0, len(rows), _FRAMES_AT_ONCE):
            part = slice(first, first + _FRAMES_AT_ONCE)
            spectrum = np.fft.rfft(windows[rows[part], within[part]] * self._window, axis=1)
            power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
            out[part] = np.log(np.maximum(self._sums(power), np.float32(1e-10)))
        return out, frame_ends

    def _sums(self, power: Floats) -> Floats:
        """Return the power in each band, [frames, mels], from the power at each frequency, [frames, size // 2 + 1]."""
        starts, rising, weights = self._filters
        inner = power[:, starts[0] : starts[-1]]
        rise = _range_sums(inner * rising, starts - starts[0])
        fall = _range_sums(inner * (1 - rising), starts - starts[0])
        return (rise[:, :-1] + fall[:, 1:]) * weights

    @cached_property
    def _window(self) -> Floats:
        """The periodic Hann window: float32[size]."""
        return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.size) / self.size)).astype(np.float32)

    @cached_property
    def _filters(self) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Where the ranges between points start, int64[mels + 2]; how far up each frequency lies in its range; the height of each band."""
        low, high = _to_mel(np.array([self.low, self.top]), self.scale).tolist()
        points = _to_hertz(np.linspace(low, high, self.mels + 2), self.scale)
        frequencies = np.arange(self.size // 2 + 1) * self.rate / self.size
        starts = np.searchsorted(frequencies, points)
        places = np.repeat(np.arange(self.mels + 1), np.diff(starts))
        rising = (frequencies[starts[0] : starts[-1]] - points[places]) / (points[places + 1] - points[places])
        heights = 2 / (points[2:] - points[:-2]) if self.scale == "slaney" else np.ones(self.mels)
        return starts, rising.astype(np.float32), heights.astype(np.float32)


def _range_sums(values: Floats, starts: NDArray[np.int64]) -> Floats:
    """Add up [N, K] over the ranges between `starts` int64[R + 1], where a range may be empty: [N, R]."""
    out = np.zeros((len(values), len(starts) - 1), np.float32)
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        out[:, filled] = np.add.reduceat(values, starts[filled], axis=1)
    return out


def _to_mel(hertz: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    return np.where(hertz < 1000, hertz * 3 / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4))


def _to_hertz(mel: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) * (np.maximum(mel, 15) - 15) / 27))
