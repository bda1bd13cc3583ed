"""Log-mel spectrograms of many waveforms at once, computed with NumPy and scipy's FFT.

Each frame is computed independently of other frames, so padding and batching do not change a single bit of the result.

- Mel bands are sums over frequencies, not a matrix product with the mel filters. BLAS rounds a matrix product differently for different
  numbers of rows. Each band covers few frequencies, so sums are fast enough.
- Frames are computed in multiples of 16. If frames do not fill the vector registers of the processor, the FFT uses different code, which
  rounds differently.
"""

from functools import cached_property
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ends, ends_of, places_within
from mlxfp.data.sound.samples import Floats
from mlxfp.support.checks import check_choice, check_positive, check_types
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional

_FRAMES_AT_ONCE = 256  # number of frames computed at once, so that their arrays fit the CPU cache
_VECTOR = 16  # maximum number of floats in a vector register
_FLOOR = np.float32(1e-10)


@frozen
class LogMel:
    """Log-mel spectrogram: loudness of `mels` frequency bands every `hop` samples.

    `rate` is in samples per second. A frame is `size` samples under a periodic Hann window. Windows are centred on multiples of `hop`,
    with zeros before and after the waveform. A waveform of n samples has 1 + n // hop frames. At 16 kHz, the defaults are windows of 25 ms
    every 10 ms.

    Bands lie between `low` and `high` Hz. `high=None` means half of `rate`. Values are natural logarithms of power, at least log(1e-10).
    Needs scipy (extra `audio`), whose FFT is six times as fast as NumPy's.

    `scale="slaney"` uses the spacing and the equal areas of Slaney's Auditory Toolbox (1998), as in `librosa`. `scale="htk"` uses the
    spacing 2595 log10(1 + f / 700) and the equal heights of the HTK Book (2006), as in `torchaudio`. With `power=2.0` and
    `pad_mode="constant"`, both libraries give the same values as `LogMel`.

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
        _fft()
        if not 0 <= self.low < self.top <= self.rate / 2:
            raise ArgumentError(f"Bands must lie between 0 and {self.rate / 2} Hz (half the rate), got low={self.low} and high={self.top}.")
        empty = np.flatnonzero(~self._filters.any(axis=1))
        if len(empty):
            raise ArgumentError(
                f"mels={self.mels} bands are too narrow for size={self.size} at {self.rate} Hz: band {empty[0]} contains no FFT frequency. "
                "Give fewer bands or a larger size."
            )

    @property
    def top(self) -> float:
        """Upper end of the highest band in Hz."""
        return self.rate / 2 if self.high is None else self.high

    def frames(self, values: Floats, ends: Ends) -> tuple[Floats, Ends]:
        """Return the frames of all waveforms as `frames`, float32[T, mels], and the boundaries between waveforms as `bounds`, int64[B + 1].

        `values` holds the samples of all waveforms, and `ends`, int64[B + 1], the boundaries between waveforms. Waveform i has the samples
        `values[ends[i]:ends[i + 1]]` and the frames `frames[bounds[i]:bounds[i + 1]]`.
        """
        lengths = np.diff(ends)
        counts = np.where(lengths > 0, 1 + lengths // self.hop, 0)  # number of frames of each waveform
        padded = self._padded(values, ends)
        starts = np.repeat(ends[:-1] + np.arange(len(counts)) * self.size, counts) + places_within(counts) * self.hop
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.size)
        out = np.empty((len(starts), self.mels), np.float32)
        rows = min(_FRAMES_AT_ONCE, max(1, -(-len(starts) // _VECTOR)) * _VECTOR)
        buffer = np.zeros((rows, self.size))  # float64 is needed: with float32, quiet bands next to loud bands are off by 0.005
        power = np.empty((self.size // 2 + 1, rows), np.float32)
        for first in range(0, len(starts), rows):
            part = starts[first : first + rows]
            np.multiply(windows[part], self._window, out=buffer[: len(part)])
            parts = np.square(_fft().rfft(buffer, axis=1).view(np.float64)).reshape(rows, -1, 2)  # squares of the real and imaginary parts
            np.add(parts[:, :, 0].T, parts[:, :, 1].T, out=power)
            loud = self._sums(power)
            np.log(np.maximum(loud, _FLOOR, out=loud), out=loud)
            out[first : first + rows] = loud.T[: len(part)]
        return out, ends_of(counts)

    def _padded(self, values: Floats, ends: Ends) -> Floats:
        """Return the concatenated waveforms with `size` zeros before, between and after them."""
        out = np.zeros(len(values) + len(ends) * self.size, np.float32)
        before = self.size // 2
        for first, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            out[before + first : before + stop] = values[first:stop]
            before += self.size
        return out

    def _sums(self, power: Floats) -> Floats:
        """Return the power in each mel band, float32[mels, frames].

        The argument `power` holds the power at each frequency, float32[size // 2 + 1, frames]. The sums are computed in steps. Step 1
        adds the lowest frequency of every band, step 2 adds the next frequency, and so on.
        """
        positions, steps = self._steps
        out = np.zeros((self.mels, power.shape[1]), np.float32)
        for frequencies, weights in steps:
            out[: len(weights)] += power[frequencies] * weights
        return out[positions]

    @cached_property
    def _window(self) -> NDArray[np.float64]:
        """Periodic Hann window, float64[size]."""
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.size) / self.size)

    @cached_property
    def _filters(self) -> NDArray[np.float64]:
        """Weight of each frequency in each band, float64[mels, size // 2 + 1]."""
        low, high = _to_mel(np.array([self.low, self.top]), self.scale).tolist()
        points = _to_hertz(np.linspace(low, high, self.mels + 2), self.scale)[:, None]
        frequencies = np.arange(self.size // 2 + 1) * self.rate / self.size
        rising = (frequencies - points[:-2]) / (points[1:-1] - points[:-2])
        falling = (points[2:] - frequencies) / (points[2:] - points[1:-1])
        heights = 2 / (points[2:] - points[:-2]) if self.scale == "slaney" else np.ones((self.mels, 1))
        return np.maximum(0, np.minimum(rising, falling)) * heights

    @cached_property
    def _steps(self) -> tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], Floats]]]:
        """Mel bands sorted by number of frequencies, widest band first, and the frequencies and weights of the bands.

        The value is (places, steps). `places`, int64[mels], holds the position of each band in the sorted order. `steps` is a list of
        (frequency indices, weights). Step i holds, for each band that is wide enough, the frequency i places above its lowest.
        """
        inside = self._filters > 0
        firsts, counts = inside.argmax(axis=1), inside.sum(axis=1)
        order = np.argsort(-counts, kind="stable")
        steps = []
        for number in range(counts.max()):
            bands = order[: np.count_nonzero(counts > number)]
            frequencies = firsts[bands] + number
            steps.append((frequencies, self._filters[bands, frequencies][:, None].astype(np.float32)))
        return np.argsort(order), steps


def _fft() -> Any:
    return optional("scipy.fft", extra="audio", needed_by="LogMel")


def _to_mel(hertz: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    return np.where(hertz < 1000, hertz * 3 / 200, 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4))


def _to_hertz(mel: NDArray[np.float64], scale: str) -> NDArray[np.float64]:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) * (np.maximum(mel, 15) - 15) / 27))
