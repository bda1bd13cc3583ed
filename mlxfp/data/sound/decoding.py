"""Files of sound to samples, by libsndfile (soundfile), and samples to another rate, by the SoX Resampler library (soxr)."""

import re
import threading
import wave
from io import BytesIO
from typing import Any
from zlib import crc32

import numpy as np

from mlxfp.data.sound.samples import Floats
from mlxfp.support.errors import DataError
from mlxfp.support.optional import optional

SUFFIXES = (".aif", ".aiff", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".wav")
MOST_RATE = 768_000  # samples per second, the highest rate of converters: more is damage

_MOST_SAMPLES = 1 << 28  # of all channels of a file, 1 GiB of floats: 4 hours at 16 kHz, or 50 minutes of stereo at 44.1 kHz
_HEADER, _BYTES = 44, 2  # the bytes of the header of a WAV file with nothing but samples, and of a sample
_MOST_CHANNELS = 2  # with more, libsndfile may look at other parts of the header
_READ_AT_ONCE = 1 << 20  # samples: a header may declare more than there are, so memory is asked for as they come
_UNKNOWN_LENGTH = (1 << 63) - 1  # what libsndfile says of a FLAC file that does not say it
_UNKNOWN_SIZE = 0xFFFFFFFF  # of a WAV file written to a pipe: the samples go on to the end
_SIZE_OF_SAMPLES = re.compile(r"^ *(?:data|SSND) *: *(\d+) \(should be (\d+)\)", re.MULTILINE)  # in libsndfile's account of a file
_KEPT_RESAMPLERS = 8

_of_thread = threading.local()  # a resampler has a state, so every thread has its own


def check_installed(needed_by: str, *, resampling: bool) -> None:
    """Raise `MissingExtraError` unless the packages that decode and, if asked for, resample are installed."""
    optional("soundfile", extra="audio", needed_by=needed_by)
    if resampling:
        optional("soxr", extra="audio", needed_by=f"{needed_by}(rate=)")


def decode(data: bytes, path: str) -> tuple[Floats, int]:
    """Return the samples of a file, the mean of its channels, float32[T], and how many there are per second. Raises `DataError`."""
    soundfile = optional("soundfile", extra="audio", needed_by="read_audio")
    plain = _plain_wav(data)
    if plain is not None:
        return _mono(plain[0]), plain[1]
    try:
        with soundfile.SoundFile(BytesIO(data)) as file:
            _check_declared(file, path)
            samples = _samples(file)
            missing = _missing(file, data, len(samples))
            rate: int = file.samplerate
    except DataError:
        raise
    except Exception as error:  # a file can be damaged in more ways than the library has errors for
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise DataError(
            f"A file cannot be decoded as sound: {reason or type(error).__name__}, in {path!r}. Copy it again, convert it, as with "
            'ffmpeg -i old new.wav, or leave such files out by on_error("skip").'
        ) from error
    if missing:
        raise DataError(f'A file ends early: {missing}, in {path!r}. Copy it again, or leave such files out by on_error("skip").')
    if not np.isfinite(samples).all():
        raise DataError(f"A file has samples that are not finite: got nan or inf, in {path!r}. Write it again, or leave it out.")
    return _mono(samples), rate


def _mono(samples: Floats) -> Floats:
    return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float64).astype(np.float32)


def _plain_wav(data: bytes) -> tuple[Floats, int] | None:
    """Return what libsndfile reads of a whole WAV file of 16 bits with the shortest header, float32[T, channels], and its rate.

    None for other files. libsndfile asks Python for a few bytes at a time, and in two threads these calls wait for one another: on files of
    a second, two threads were slower than one.
    """
    try:
        with wave.open(BytesIO(data)) as file:
            channels, width, rate, frames, *_ = file.getparams()
            samples = np.frombuffer(file.readframes(frames), "<i2") if width == _BYTES else None
    except (wave.Error, EOFError, ValueError, RuntimeError):  # for libsndfile to judge
        return None
    whole = samples is not None and 0 < len(samples) == frames * channels and len(data) == _HEADER + samples.nbytes
    if samples is None or not whole or channels > _MOST_CHANNELS or not 0 < rate <= MOST_RATE or len(samples) > _MOST_SAMPLES:
        return None
    return (samples.astype(np.float32) / np.float32(32768)).reshape(-1, channels), rate


def resample(samples: Floats, old: int, new: int, path: str) -> Floats:
    """Bring the samples of a file to another rate, with silence around them: float32[T] to float32[T * new / old, rounded].

    Frequencies above half of the lower rate are filtered out. The same numbers as `soxr.resample(samples, old, new, quality="HQ")`.
    Raises `DataError` for more samples than a file may have.
    """
    if old == new or not len(samples):
        return samples
    if len(samples) * new > _MOST_SAMPLES * old:
        raise DataError(
            f"A file has too much sound for one row: {len(samples):,} samples of {old:,} a second, resampled to {new:,}, where "
            f"{_MOST_SAMPLES:,} are the most, in {path!r}. If its rate is right, cut it; else leave it out."
        )
    resampler = _resampler(old, new)
    resampler.clear()
    out: Floats = resampler.resample_chunk(samples, last=True)
    return out


def _resampler(old: int, new: int) -> Any:
    """Return this thread's resampler: for a second of sound, making one takes as long as using it."""
    kept: dict[Any, Any] = _of_thread.__dict__
    if (old, new) not in kept:
        if len(kept) >= _KEPT_RESAMPLERS:
            kept.clear()
        soxr = optional("soxr", extra="audio", needed_by="read_audio(rate=)")
        kept[old, new] = soxr.ResampleStream(old, new, 1, dtype="float32", quality="HQ")
    return kept[old, new]


def _check_declared(file: Any, path: str) -> None:
    """Check what the header of a file declares, before memory is asked for."""
    if not 0 < file.samplerate <= MOST_RATE:
        raise DataError(
            f"A file cannot be decoded as sound: it has {file.samplerate:,} samples per second, and {MOST_RATE:,} are the most, in "
            f"{path!r}. Copy it again, or leave it out."
        )
    if file.frames == _UNKNOWN_LENGTH:
        raise DataError(
            f"A file does not say how long it is, as one written to a pipe, in {path!r}. Write it again, as with ffmpeg -i old new.wav, or "
            'leave such files out by on_error("skip").'
        )
    if file.frames * file.channels > _MOST_SAMPLES:
        raise DataError(
            f"A file declares too much sound for one row: {file.frames:,} samples of {file.channels} channels, at most {_MOST_SAMPLES:,} "
            f"in all, in {path!r}. Cut it, as with ffmpeg -i old -f segment -segment_time 600 %03d.wav, or leave it out."
        )


def _samples(file: Any) -> Floats:
    """Read the samples that are there, at most as many as the header declares: float32[T, channels]."""
    most = max(1, _READ_AT_ONCE // file.channels)
    parts: list[Floats] = []
    while True:
        part: Floats = np.empty((min(most, file.frames - most * len(parts)), file.channels), np.float32)
        count = file.buffer_read_into(part, "float32") if len(part) else 0
        parts.append(part[:count])
        if count < most:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _missing(file: Any, data: bytes, count: int) -> str | None:
    """Say what is missing at the end of a file, if something is; libsndfile reads what is there.

    MP3 without the frame that counts the others cannot be told: libsndfile guesses the length, and sound may follow or be missing.
    """
    if data[:4] == b"OggS":
        return _missing_of_pages(data)
    if data[:4] in (b"RIFF", b"FORM"):
        return _missing_of_chunks(file, data)
    if count >= file.frames or (file.format == "MP3" and b"Xing" not in data and b"Info" not in data):
        return None
    return f"got {count:,} samples where its header says {file.frames:,}"


def _missing_of_pages(data: bytes) -> str | None:
    """Check the pages of an Ogg file by their checksums (RFC 3533): libsndfile stops at the first damaged one, without a word."""
    at, ended = 0, False
    while data[at : at + 4] == b"OggS":
        head = data[at : at + _PAGE_HEADER]
        body = at + _PAGE_HEADER + head[-1]  # the last byte says how many sizes follow
        end = body + sum(data[at + _PAGE_HEADER : body])
        if len(head) < _PAGE_HEADER or end > len(data):
            return "the last page of its stream is missing"
        without = head[:_CHECKSUM] + bytes(4) + head[_CHECKSUM + 4 :] + data[at + _PAGE_HEADER : end]
        if _ogg_checksum(without) != int.from_bytes(head[_CHECKSUM : _CHECKSUM + 4], "little"):
            return f"the page at byte {at:,} is damaged"
        at, ended = end, bool(head[5] & _ENDS_STREAM)
    if ended:
        return None
    return "the last page of its stream is missing" if at == len(data) else f"there is no page at byte {at:,}"


_PAGE_HEADER, _CHECKSUM, _ENDS_STREAM = 27, 22, 4  # bytes, the place of the checksum, and a flag of a page of Ogg
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _ogg_checksum(page: bytes) -> int:
    """Return Ogg's checksum: that of zlib with the bits of each byte in the other order, and without its inversions."""
    return int(f"{crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF:032b}"[::-1], 2)


def _missing_of_chunks(file: Any, data: bytes) -> str | None:
    """Compare the sizes that WAV and AIFF declare with that of the file. libsndfile's account comes last: it takes as long as decoding."""
    order, name = ("little", b"data") if data[:1] == b"R" else ("big", b"SSND")
    places = [4, data.find(name, 12) + 4]
    sizes = [int.from_bytes(data[place : place + 4], order) for place in places]  # type: ignore[arg-type]  # one of two words
    if all(place + 4 + size <= len(data) for place, size in zip(places, sizes, strict=True)):
        return None
    found = _SIZE_OF_SAMPLES.search(file.extra_info)
    if found is None or int(found[1]) == _UNKNOWN_SIZE or int(found[2]) >= int(found[1]):
        return None
    return f"got {int(found[2]):,} bytes of sound where its header says {int(found[1]):,}"
