"""sound: from speech files at 8 kHz to padded batches of log-mel spectrograms at 16 kHz, with two workers.

The peer is a thread pool. soundfile decodes, soxr resamples, and numpy or scipy compute spectrograms with the filters of librosa.
"""

import shutil
import tempfile
import wave
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

import mlxfp as fp
from benchmarks.inputs import data_folder
from benchmarks.measuring import Row, against, installed

Floats = np.ndarray[Any, Any]
_RATE, _SIZE, _HOP, _MELS = 16_000, 400, 160, 80
_GROUP, _WORKERS, _BAR = 32, 2, 1.1


def rows(*, small: bool) -> list[Row]:
    """Read an epoch of batches of 32."""
    with tempfile.TemporaryDirectory() as folder:
        count = _write(Path(folder), 64 if small else 3000)
        spectrogram = fp.collators.LogMel(_RATE, size=_SIZE, hop=_HOP, mels=_MELS)
        batches = fp.pipe(
            fp.read_audio(folder, rate=_RATE),
            fp.audio.log_mel(spectrogram),
            fp.batch(_GROUP),
            fp.collate(fp.collators.audio(features="features")),
            fp.prefetch(8, workers=_WORKERS),
        )
        theirs: list[Any] | None = None
        if installed("soundfile", "soxr", "librosa"):
            filters = import_module("librosa").filters.mel(sr=_RATE, n_fft=_SIZE, n_mels=_MELS)
            files = sorted(Path(folder).glob("*.wav"))
            theirs = [partial(_by_hand, files, filters, fft) for fft in (np.fft.rfft, import_module("scipy.fft").rfft)]
        work = f"{count:,} files of 8 kHz: resample, log-mel, batches of {_GROUP}"
        found = against(work, "soundfile, soxr, librosa's filters", ours=lambda: _consume(batches), theirs=theirs, rows=count)
        return [Row("sound", *found, _BAR)]


def _consume(batches: Any) -> None:
    for _ in batches:
        pass


def _by_hand(files: list[Path], filters: Floats, fft: Callable[..., Any]) -> None:
    window = np.hanning(_SIZE + 1)[:-1].astype(np.float32)
    one = partial(_features, filters=np.ascontiguousarray(filters.T, np.float32), window=window, fft=fft)
    with ThreadPoolExecutor(_WORKERS) as pool:
        _consume(_batches(pool.map(one, files)))


def _batches(features: Iterator[Floats]) -> Iterator[dict[str, mx.array]]:
    for group in iter(lambda: list(islice(features, _GROUP)), []):
        lengths = np.array([len(each) for each in group], np.int32)
        padded = np.zeros((len(group), lengths.max(), _MELS), np.float32)
        for place, each in zip(padded, group, strict=True):
            place[: len(each)] = each
        mask = np.arange(lengths.max()) < lengths[:, None]
        yield {"features": mx.array(padded), "lengths": mx.array(lengths), "mask": mx.array(mask.astype(np.int32))}


def _features(file: Path, *, filters: Floats, window: Floats, fft: Callable[..., Any]) -> Floats:
    waveform, rate = import_module("soundfile").read(file, dtype="float32")
    resampled = import_module("soxr").resample(waveform, rate, _RATE)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(resampled, _SIZE // 2), _SIZE)[::_HOP]
    spectrum = fft(windows * window, axis=1)
    features: Floats = np.log(np.maximum((spectrum.real**2 + spectrum.imag**2) @ filters, 1e-10))
    return features


def _write(folder: Path, count: int) -> int:
    """Write `count` files into a folder: copies of recorded digits, or tones in noise."""
    real = data_folder()
    recorded = sorted((real / "speech").glob("*.wav")) if real is not None else []
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number:05}.wav"
        if recorded:
            shutil.copyfile(recorded[number % len(recorded)], path)
            continue
        length = int(rng.uniform(1500, 6000))
        sound = 8000 * np.sin(np.arange(length) * rng.uniform(0.1, 1)) + rng.normal(0, 500, length)
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(sound.astype("<i2").tobytes())
    return count
