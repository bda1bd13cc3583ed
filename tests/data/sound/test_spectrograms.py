"""Log-mel spectrograms against the definition written out, and against librosa."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.data.sound.spectrograms import LogMel
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, UnknownNameError


def frames(mel: LogMel, waveform: np.ndarray) -> np.ndarray:
    return mel.frames(waveform.astype(np.float32), np.array([0, len(waveform)]))[0]


def as_defined(mel: LogMel, waveform: np.ndarray) -> np.ndarray:
    """Power in each band, from sums over sines and cosines and triangles, in float64."""
    bins = np.arange(mel.size // 2 + 1)
    padded = np.concatenate([np.zeros(mel.size // 2), waveform, np.zeros(mel.size)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(mel.size) / mel.size)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(mel.size), bins) / mel.size)
    starts = range(0, len(waveform) + 1, mel.hop) if len(waveform) else []
    power = np.array([np.abs((padded[start : start + mel.size] * window) @ waves) ** 2 for start in starts]).reshape(-1, len(bins))
    if mel.scale == "htk":
        low, high = (2595 * np.log10(1 + each / 700) for each in (mel.low, mel.top))
        points = 700 * (10 ** (np.linspace(low, high, mel.mels + 2) / 2595) - 1)
    else:
        low, high = (each * 3 / 200 if each < 1000 else 15 + 27 * np.log(each / 1000) / np.log(6.4) for each in (mel.low, mel.top))
        points = np.array([p * 200 / 3 if p < 15 else 1000 * 6.4 ** ((p - 15) / 27) for p in np.linspace(low, high, mel.mels + 2)])
    hertz = bins * mel.rate / mel.size
    bands = []
    for left, middle, right in zip(points, points[1:], points[2:], strict=False):
        triangle = np.maximum(0, np.minimum((hertz - left) / (middle - left), (right - hertz) / (right - middle)))
        bands.append(power @ triangle * (2 / (right - left) if mel.scale == "slaney" else 1))
    return np.array(bands).T.reshape(-1, mel.mels)


def assert_near(found: np.ndarray, power: np.ndarray) -> None:
    """Compare as power, within what 32 bits can hold beside the loudest band."""
    assert found.dtype == np.float32
    expected = np.maximum(power, 1e-10)
    np.testing.assert_allclose(np.exp(found.astype(np.float64)), expected, rtol=2e-4, atol=1e-6 * expected.max(initial=0))


@given(
    st.integers(0, 300), st.integers(32, 80), st.integers(1, 90), st.integers(1, 5), st.sampled_from(["slaney", "htk"]), st.integers(0, 99)
)
def test_a_spectrogram_is_what_its_definition_says(length: int, size: int, hop: int, mels: int, scale: Any, seed: int):
    mel = LogMel(1000, size=size, hop=hop, mels=mels, low=20, high=450.0, scale=scale)
    waveform = np.random.default_rng(seed).uniform(-1, 1, length).astype(np.float32)
    found = frames(mel, waveform)
    assert found.shape == (1 + length // hop if length else 0, mels)
    assert_near(found, as_defined(mel, waveform.astype(np.float64)))


def chirp() -> np.ndarray:
    times = np.arange(1000) / 8000
    tone = 0.3 * np.exp(-20 * times) * np.sin(2 * np.pi * 1500 * times)
    return (0.5 * np.sin(2 * np.pi * (200 * times + 8000 * times * times)) + tone).astype(np.float32)


# librosa 0.11.0 in float64: log of feature.melspectrogram(y=chirp(), sr=8000, n_fft=256, hop_length=300, n_mels=8, fmin=50, fmax=3800,
# power=2.0, pad_mode="constant"), with htk=False, norm="slaney" and with htk=True, norm=None.
LIBROSA = {
    "slaney": [
        [0.81831, -2.44151, -7.32290, -5.07770, -0.87218, -1.67970, -5.91052, -7.12023],
        [-8.46169, -0.32231, 1.53633, -0.38863, -1.47439, -2.32633, -19.91995, -23.02585],
        [-19.92023, -17.25030, -12.19622, -1.40512, 1.24632, -0.77610, -14.00863, -21.62059],
        [-11.01468, -10.90795, -10.73508, -10.48486, -4.46045, 0.57617, 0.20345, -8.67102],
    ],
    "htk": [
        [6.21953, 5.23033, -0.78191, 0.22491, 4.95982, 4.51123, 0.39359, -0.55991],
        [-7.34887, 1.69652, 6.71658, 6.55563, 4.36848, 3.86833, -13.80440, -17.10223],
        [-15.53724, -13.30630, -9.16777, 3.37789, 7.10369, 5.56632, -8.24734, -15.31714],
        [-5.81999, -5.55797, -5.21269, -4.75542, 1.37587, 6.81191, 6.44313, -2.36253],
    ],
}


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_numbers_that_librosa_gave(scale: Any):
    mel = LogMel(8000, size=256, hop=300, mels=8, low=50, high=3800, scale=scale)
    assert_near(frames(mel, chirp()), np.exp(LIBROSA[scale]))


def test_quiet_bands_next_to_loud_ones_are_exact():
    times = np.arange(4000) / 16000
    waveform = (np.sin(2 * np.pi * 300 * times) + 1e-4 * np.random.default_rng(0).normal(size=4000)).astype(np.float32)
    spectrogram = LogMel(16000, mels=80)
    padded = np.pad(waveform.astype(np.float64), 200)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160] * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400))
    power = np.abs(np.fft.rfft(windows)) ** 2 @ spectrogram._filters.T
    np.testing.assert_allclose(frames(spectrogram, waveform), np.log(np.maximum(power, 1e-10)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("scale", "options"), [("slaney", {}), ("htk", {"htk": True, "norm": None})])
@pytest.mark.parametrize(("rate", "size", "hop", "mels"), [(16000, 400, 160, 80), (22050, 1024, 256, 128), (8000, 256, 80, 20)])
def test_the_installed_librosa_gives_the_same_within_one_ten_thousandth(
    rate: int, size: int, hop: int, mels: int, scale: Any, options: dict[str, Any]
):
    librosa = pytest.importorskip("librosa", reason="the reference for spectrograms is not installed: pip install librosa")
    waveform = np.random.default_rng(0).normal(0, 0.1, rate).astype(np.float32) + 0.2 * np.sin(np.arange(rate) / 9).astype(np.float32)
    settings = {"sr": rate, "n_fft": size, "hop_length": hop, "n_mels": mels, "pad_mode": "constant", "dtype": np.float64, **options}
    power = librosa.feature.melspectrogram(y=waveform.astype(np.float64), **settings)
    found = frames(LogMel(rate, size=size, hop=hop, mels=mels, scale=scale), waveform)
    np.testing.assert_allclose(found, np.log(np.maximum(power.T, 1e-10)), atol=1e-4, rtol=0)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=5), st.integers(0, 99))
def test_waveforms_together_have_the_frames_of_each_alone_bit_for_bit(lengths: list[int], seed: int):
    mel = LogMel(1000, size=32, hop=7, mels=4)
    random = np.random.default_rng(seed)
    waveforms = [random.uniform(-1, 1, length).astype(np.float32) for length in lengths]
    together, ends = mel.frames(np.concatenate(waveforms), np.concatenate([[0], np.cumsum(lengths)]))
    for place, waveform in enumerate(waveforms):
        assert np.array_equal(together[ends[place] : ends[place + 1]], frames(mel, waveform))


def test_many_frames_are_computed_in_parts_without_a_seam():
    mel = LogMel(1000, size=32, hop=2, mels=4)
    waveform = np.random.default_rng(0).uniform(-1, 1, 5000)
    later = frames(mel, waveform[2000:])
    assert len(frames(mel, waveform)) == 2501
    assert np.array_equal(frames(mel, waveform)[1008:], later[8:])


def test_silence_is_the_floor():
    assert np.array_equal(frames(LogMel(1000, size=32, hop=16, mels=4), np.zeros(32)), np.full((3, 4), np.log(np.float32(1e-10))))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rate": 0}, ArgumentError, "rate must be at least 1"),
        ({"hop": 0}, ArgumentError, "hop must be at least 1"),
        ({"mels": 2.0}, ArgumentTypeError, "mels must be an int"),
        ({"high": 501.0}, ArgumentError, r"Bands must lie between 0 and 500\.0 Hz \(half the rate\), got low=0\.0 and high=501\.0"),
        ({"low": 300.0, "high": 200.0}, ArgumentError, "got low=300.0 and high=200.0"),
        ({"low": "0"}, ArgumentTypeError, "low must be int or float"),
        ({"scale": "mel"}, UnknownNameError, "No scale is named 'mel'"),
        (
            {"mels": 40},
            ArgumentError,
            r"mels=40 bands are too narrow for size=32 at 1000 Hz: band 0 contains no FFT frequency\. Give fewer bands",
        ),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(options: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        LogMel(**{"rate": 1000, "size": 32, "hop": 8, "mels": 4, **options})
