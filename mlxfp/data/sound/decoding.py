"""Decoding of sound files with libsndfile (soundfile) and resampling with the SoX Resampler library (soxr)."""

import re
import threading
import wave
from io import BytesIO
from typing import Any, Literal
from zlib import crc32

import numpy as np

from mlxfp.data.sound.samples import Floats
from mlxfp.support.errors import DataError
from mlxfp.support.optional import optional

SUFFIXES: tuple[str, ...] = (".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".rf64", ".w64", ".wav")
SUFFIXES += (".aac", ".amr", ".m4a", ".wma")  # formats that libsndfile cannot decode; the error message gives a command to convert the file
MOST_RATE = 768_000  # maximum sample rate in samples per second; a higher rate means a damaged file

_MOST_SAMPLES = 1 << 28  # maximum number of samples in a file, over all channels: 1 GiB as float32
_HEADER, _BYTES = 44, 2  # number of bytes of the shortest WAV header, and of one 16-bit sample
_MOST_CHANNELS = 2  # `_plain_wav` reads at most 2 channels, because files with more channels have a longer header.
_BLOCK_SAMPLES = 1 << 20  # samples per read; memory grows gradually, because a header may declare too many samples
_UNKNOWN_LENGTH = (1 << 63) - 1  # number of frames that libsndfile returns for a FLAC file without a declared length
# A program that writes to a pipe does not know the size of the samples, and declares a placeholder in a WAV or AIFF header.
# ffmpeg declares 0xFFFFFFFF bytes, arecord 0x80000000 and sox 0x7FFFF000. After a placeholder, the samples fill the rest of the file.
# A declared size of `_UNKNOWN_SIZE` bytes or more is a placeholder. Real files are smaller, because `_MOST_SAMPLES` limits their size.
_UNKNOWN_SIZE = 0x7FFF0000
_CHUNK_HEADER = 8  # number of bytes of a chunk header: 4 for the name, 4 for the size
# Pattern of a libsndfile log line with the declared and the actual number of sample bytes (WAV and AIFF).
_SIZE_OF_SAMPLES = re.compile(r"^ *(?:data|SSND) *: *(\d+) \(should be (\d+)\)", re.MULTILINE)
# Pattern of a libsndfile log line with the declared and the actual size of the samples (AU) or of the whole file (W64 and RF64).
_SIZE_OF_FILE = re.compile(r"^ *(?:Data Size|riff|Riff size) *: *(\d+) \(should be (\d+)\)", re.MULTILINE)
_MAX_RESAMPLERS = 8

_thread_local = threading.local()  # One set of resamplers per thread, because a resampler has a state.


def decode(data: bytes, path: str) -> tuple[Floats, int]:
    """Return the samples of a sound file, averaged over channels, float32[T], and the sample rate.

    Raises `DataError` for a damaged file.
    """
    soundfile = optional("soundfile", extra="audio", needed_by="read_audio")
    data = _with_size(data)
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
    except Exception as error:  # soundfile raises many exception types for damaged files
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise DataError(
            f"A file cannot be decoded as sound: {reason or type(error).__name__}, in {path!r}. Copy the file again, convert the file "
            '(ffmpeg -i old new.wav), or skip damaged files with on_error("skip").'
        ) from error
    if missing:
        raise DataError(f'A file ends early: {missing}, in {path!r}. Copy the file again, or skip damaged files with on_error("skip").')
    if not np.isfinite(samples).all():
        raise DataError(f"A file has samples that are not finite: got nan or inf, in {path!r}. Correct the file, or delete it.")
    return _mono(samples), rate


def _with_size(data: bytes) -> bytes:
    """Correct the header of an interrupted WAV or AIFF recording, which declares no samples. Return other data unchanged."""
    if data[:4] not in (b"RIFF", b"FORM"):
        return data
    order, name, fields = _layout(data)
    offset = 12
    while data[offset : offset + 4] != name and offset < len(data):
        size = int.from_bytes(data[offset + 4 : offset + _CHUNK_HEADER], order)
        offset += _CHUNK_HEADER + size + size % 2
    start = offset + _CHUNK_HEADER
    if start + fields >= len(data) or int.from_bytes(data[offset + 4 : start], order) > fields or _are_chunks(data, start + fields, order):
        return data
    return data[: offset + 4] + min(len(data) - start, _UNKNOWN_SIZE).to_bytes(4, order) + data[start:]


def _layout(data: bytes) -> tuple[Literal["little", "big"], bytes, int]:
    """Return the byte order of a WAV or AIFF file, the name of the sample chunk, and the number of chunk bytes before the samples."""
    return ("little", b"data", 0) if data[:1] == b"R" else ("big", b"SSND", 8)


def _are_chunks(data: bytes, offset: int, order: Literal["little", "big"]) -> bool:
    """Return True if the bytes from `offset` to the end of a WAV or AIFF file are complete chunks (name, size and content).

    This test is needed for a file whose header declares no samples. If only complete chunks follow the header, the file is really empty.
    Otherwise the bytes are the samples of an interrupted recording.
    """
    while offset < len(data):
        if not data[offset : offset + 4].rstrip().isalnum():  # chunk names are ASCII letters and digits, padded with spaces at the end
            return False
        size = int.from_bytes(data[offset + 4 : offset + _CHUNK_HEADER], order)
        offset += _CHUNK_HEADER + size + size % 2
    return offset in (len(data), len(data) + 1)


def _mono(samples: Floats) -> Floats:
    return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float64).astype(np.float32)


def _plain_wav(data: bytes) -> tuple[Floats, int] | None:
    """Decode a 16-bit WAV file without extra chunks. Return the samples, float32[T, channels], and the sampling rate.

    Returns None for any other file. libsndfile gives the same samples, but needs the GIL for every few bytes. With libsndfile, two threads
    decoded one-second files more slowly than one thread.
    """
    try:
        with wave.open(BytesIO(data)) as file:
            channels, width, rate, frames, *_ = file.getparams()
            samples = np.frombuffer(file.readframes(frames), "<i2") if width == _BYTES else None
    except (wave.Error, EOFError, ValueError, RuntimeError):
        return None
    whole = samples is not None and 0 < len(samples) == frames * channels and len(data) == _HEADER + samples.nbytes
    if samples is None or not whole or channels > _MOST_CHANNELS or not 0 < rate <= MOST_RATE or len(samples) > _MOST_SAMPLES:
        return None
    return (samples.astype(np.float32) / np.float32(32768)).reshape(-1, channels), rate


def resample(samples: Floats, old: int, new: int, path: str) -> Floats:
    """Resample float32[T] to float32[round(T * new / old)]. Silence is assumed before and after the samples.

    Frequencies above half of the lower rate are filtered out. The result equals `soxr.resample(samples, old, new, quality="HQ")`. Raises
    `DataError` for a result with too many samples.
    """
    if old == new or not len(samples):
        return samples
    if len(samples) * new > _MOST_SAMPLES * old:
        raise DataError(
            f"A file has too much sound for one row: {len(samples):,} samples at {old:,} per second, resampled to {new:,} per "
            f"second, would exceed {_MOST_SAMPLES:,} samples, in {path!r}. Cut the file into parts, or correct the rate in its header."
        )
    resampler = _resampler(old, new)
    resampler.clear()
    out: Floats = resampler.resample_chunk(samples, last=True)
    return out


def _resampler(old: int, new: int) -> Any:
    """Return the resampler of this thread. The resampler is cached, because making one takes as long as resampling one second of sound."""
    resamplers: dict[Any, Any] = _thread_local.__dict__
    if (old, new) not in resamplers:
        if len(resamplers) >= _MAX_RESAMPLERS:
            resamplers.clear()
        soxr = optional("soxr", extra="audio", needed_by="read_audio(rate=)")
        resamplers[old, new] = soxr.ResampleStream(old, new, 1, dtype="float32", quality="HQ")
    return resamplers[old, new]


def _check_declared(file: Any, path: str) -> None:
    """Check the rate, channels and length declared in the header of a file, before memory for the samples is allocated."""
    if not 0 < file.samplerate <= MOST_RATE:
        raise DataError(
            f"A file cannot be decoded as sound: got {file.samplerate:,} samples per second, at most {MOST_RATE:,} are possible, in "
            f"{path!r}. Copy the file again, or delete it."
        )
    if file.frames == _UNKNOWN_LENGTH:
        raise DataError(
            f"A file declares no length, probably because it was written to a pipe, in {path!r}. Convert the file with "
            'ffmpeg -i old new.wav, or skip damaged files with on_error("skip").'
        )
    if file.frames * file.channels > _MOST_SAMPLES:
        raise DataError(
            f"A file declares too much sound for one row: {file.frames:,} samples in each of {file.channels} channels, at most "
            f"{_MOST_SAMPLES:,} over all channels, in {path!r}. Cut the file with ffmpeg -i old -f segment -segment_time 600 %03d.wav."
        )


def _samples(file: Any) -> Floats:
    """Read the samples of a file, float32[T, channels]. A truncated file gives fewer samples than its header declares."""
    most = max(1, _BLOCK_SAMPLES // file.channels)
    parts: list[Floats] = []
    while True:
        part: Floats = np.empty((min(most, file.frames - most * len(parts)), file.channels), np.float32)
        count = file.buffer_read_into(part, "float32") if len(part) else 0
        parts.append(part[:count])
        if count < most:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _missing(file: Any, data: bytes, count: int) -> str | None:
    """Describe what is missing at the end of a truncated file, or return None.

    This check is needed, because libsndfile reads such files without an error. An MP3 file without a frame count cannot be checked, because
    libsndfile only estimates the length.
    """
    if data[:4] == b"OggS":
        return _missing_of_pages(data)
    if data[:4] in (b"RIFF", b"FORM"):
        return _missing_of_chunks(file, data)
    if data[:4] in (b".snd", b"riff", b"RF64"):
        return _shorter(_SIZE_OF_FILE.search(file.extra_info))
    if data[:4] == b"caff":
        start = data.find(b"data", 8) + 12
        declared = int.from_bytes(data[start - 8 : start], "big", signed=True)  # -1 stands for an unknown size
        return f"got {len(data) - start:,} bytes of sound but the header declares {declared:,}" if start + declared > len(data) else None
    if count >= file.frames or (file.format == "MP3" and b"Xing" not in data and b"Info" not in data):
        return None
    return f"got {count:,} samples but the header declares {file.frames:,}"


def _missing_of_pages(data: bytes) -> str | None:
    """Check the checksums of the pages of an Ogg file (RFC 3533), because libsndfile silently stops at the first damaged page."""
    offset, ended = 0, False
    while data[offset : offset + 4] == b"OggS":
        head = data[offset : offset + _PAGE_HEADER]
        body = offset + _PAGE_HEADER + head[-1]  # head[-1] is the number of segments. One size byte per segment follows the header.
        end = body + sum(data[offset + _PAGE_HEADER : body])
        if len(head) < _PAGE_HEADER or end > len(data):
            return "the last page of the stream is missing"
        cleared = head[:_CHECKSUM] + bytes(4) + head[_CHECKSUM + 4 :] + data[offset + _PAGE_HEADER : end]
        if _ogg_checksum(cleared) != int.from_bytes(head[_CHECKSUM : _CHECKSUM + 4], "little"):
            return f"the page at byte {offset:,} is damaged"
        offset, ended = end, bool(head[5] & _ENDS_STREAM)
    if ended:
        return None
    return "the last page of the stream is missing" if offset == len(data) else f"there is no page at byte {offset:,}"


_PAGE_HEADER, _CHECKSUM, _ENDS_STREAM = 27, 22, 4  # Ogg page: size of the header, offset of the checksum, and flag of the last page
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _ogg_checksum(page: bytes) -> int:
    """Return the checksum of an Ogg page (RFC 3533), computed with the CRC-32 of zlib.

    Ogg and zlib use the same polynomial. Ogg processes the highest bit of each byte first, so the bits of the page and of the result are
    reversed. zlib inverts the initial value and the result, but Ogg does not, so the inversions are undone.
    """
    return int(f"{crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF:032b}"[::-1], 2)


def _missing_of_chunks(file: Any, data: bytes) -> str | None:
    """Compare the sizes declared in a WAV or AIFF file with the file size. Return a description of the missing samples, or None.

    The log of libsndfile is read only if the sizes differ, because producing the log takes as long as decoding.
    """
    order, name, _ = _layout(data)
    offsets = [4, data.find(name, 12) + 4]
    sizes = [int.from_bytes(data[offset : offset + 4], order) for offset in offsets]
    if all(offset + 4 + size <= len(data) for offset, size in zip(offsets, sizes, strict=True)):
        return None
    return _shorter(_SIZE_OF_SAMPLES.search(file.extra_info))


def _shorter(match: re.Match[str] | None) -> str | None:
    """Return an error text for a sound file with missing bytes. Return None for a complete file.

    `match` is a match in the log of libsndfile. Its groups are the declared and the actual number of bytes.
    """
    if match is None or int(match[1]) >= _UNKNOWN_SIZE or int(match[2]) >= int(match[1]):
        return None
    return f"got {int(match[2]):,} bytes of sound but the header declares {int(match[1]):,}"
