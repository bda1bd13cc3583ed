"""WAV files to samples, and samples to another rate.

The format is that of the "Multimedia Programming Interface and Data Specifications 1.0" (1991), with WAVE_FORMAT_EXTENSIBLE (2007).
Python's `wave` reads neither floats nor, before 3.12, the latter.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.errors import DataError

Floats = NDArray[np.float32]

MOST_RATE = 768_000  # samples per second, the highest rate of converters: more is damage

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN_SIZE = 0xFFFFFFFF  # of a file written to a pipe: the samples go on to the end
_FLOATS = {4: "<f4", 8: "<f8"}
_ZEROS = 10  # crossings of zero of the filter, on each side
_BETA = 5.0  # of its Kaiser window; these two are the values of scipy.signal.resample_poly
_CELLS = 1 << 20  # numbers that are multiplied at once: 8 MB


def read_wave(data: bytes, path: str) -> tuple[Floats, int]:
    """Return the samples of a file, the mean of its channels, float32[T], and how many there are per second. Raises `DataError`."""
    try:
        (kind, channels, rate, width), (start, stated) = _read_heads(data)
    except (ValueError, struct.error) as error:
        reason = "it ends inside its header" if isinstance(error, struct.error) else str(error)
        raise DataError(
            f"A file cannot be read as WAV: {reason}, in {path!r}. Convert it to samples of 16 bits, as with "
            "ffmpeg -i old -c:a pcm_s16le new.wav."
        ) from error
    size = len(data) - start if stated == _UNKNOWN_SIZE else stated
    frames = data[start : start + size - size % (width * channels)]
    if len(data) < start + size:
        raise DataError(
            f"A file ends early: got {len(frames):,} bytes of sound where its header says {stated:,}, in {path!r}. Copy it again."
        )
    samples = np.frombuffer(frames, _FLOATS[width]) if kind == _FLOAT else _from_integers(frames, width)
    if kind == _FLOAT and not np.isfinite(samples).all():
        raise DataError(f"A file has samples that are not finite: got nan or inf, in {path!r}. Write it again, or leave it out.")
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float64).astype(np.float32), rate


def _read_heads(data: bytes) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Return the format, channels, rate and bytes of a sample; and where the samples begin, with their size in bytes as stated."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError(f"it begins with {data[:4]!r}, not with RIFF and WAVE")
    found: tuple[int, int, int, int] | None = None
    for name, start, size in _chunks(data):
        if name == b"fmt ":
            found = _read_format(data, start, size)
        elif name == b"data":
            if found is None:
                raise ValueError("its samples come before their format")
            return found, (start, size)
    raise ValueError("it has no samples")


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    place = 12
    while place < len(data):
        name, size = struct.unpack_from("<4sI", data, place)
        yield name, place + 8, size
        place += 8 + size + size % 2


def _read_format(data: bytes, start: int, size: int) -> tuple[int, int, int, int]:
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data, start)
    if kind == _EXTENSIBLE and size >= 40:
        (kind,) = struct.unpack_from("<H", data, start + 24)
    width = (bits + 7) // 8
    if kind not in (_PCM, _FLOAT):
        raise ValueError(f"its samples are compressed (format {kind})")
    if width not in (_FLOATS if kind == _FLOAT else range(1, 5)):
        raise ValueError(f"its samples have {bits} bits")
    if not channels or not 0 < rate <= MOST_RATE:
        raise ValueError(f"it has {channels} channels of {rate:,} samples per second")
    return kind, channels, rate, width


def _from_integers(frames: bytes, width: int) -> NDArray[Any]:
    """Turn integers of `width` bytes into numbers from -1 to 1; integers of one byte are unsigned, as the format defines."""
    if width == 1:
        return (np.frombuffer(frames, np.uint8) - 128.0) / 128.0
    wide = np.zeros((len(frames) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(frames, np.uint8).reshape(-1, width)  # in the high bytes, where the sign is
    return wide.view("<i4")[:, 0] / 2.0**31


def resample(samples: Floats, old: int, new: int) -> Floats:
    """Bring samples to another rate: float32[T] to float32[T * new / old, rounded up], with silence around them.

    Frequencies above half of the lower rate are filtered out. The same numbers as `scipy.signal.resample_poly(samples, new, old)`.
    """
    if old == new or not len(samples):
        return samples
    up, down = new // gcd(old, new), old // gcd(old, new)
    weights, firsts = _filters(up, down)
    taps = weights.shape[1]
    count = -(-len(samples) * up // down)
    before = int(-firsts.min())
    padded = np.pad(samples.astype(np.float64), (before, taps + before))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)
    out = np.empty(count, np.float32)
    step = max(1, _CELLS // taps)
    for first in range(0, count, step):
        places, phases = np.divmod(np.arange(first, min(first + step, count), dtype=np.int64) * down, up)
        out[first : first + step] = np.einsum("nk,nk->n", windows[places + firsts[phases] + before], weights[phases])
    return out


@lru_cache(maxsize=8)
def _filters(up: int, down: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the weights of the neighbouring samples for each place between two samples, [up, taps], and the first neighbour, [up]."""
    half = _ZEROS * max(up, down)
    sinc = np.sinc(np.arange(-half, half + 1) / max(up, down)) * np.kaiser(2 * half + 1, _BETA)
    sinc *= up / sinc.sum()
    phases = np.arange(up)
    firsts = -((half - phases) // up)
    places = phases[:, None] - (firsts[:, None] + np.arange(2 * half // up + 1)) * up + half
    inside = (places >= 0) & (places <= 2 * half)
    return np.where(inside, sinc[np.clip(places, 0, 2 * half)], 0.0), firsts
