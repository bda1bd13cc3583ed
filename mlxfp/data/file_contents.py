"""Recognition of files that a reader cannot read: files of another format, compressed files, archives, UTF-16 and UTF-32."""

import codecs
import re
from pathlib import Path
from shlex import quote

from mlxfp.support.errors import ArgumentError, DataError, without_secrets
from mlxfp.support.file_formats import COMPRESSIONS

HEAD = 64  # number of bytes that are read to recognize a file
# Maps the first bytes of a compressed file to the format and to the shell command that decompresses the file.
_SIGNS = {
    b"\x1f\x8b": ("gzip", "gzip -dc <"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc <"),
    **{b"BZh%d1AY&SY" % level: ("bzip2", "bzip2 -dc <") for level in range(1, 10)},
    b"\xfd7zXZ\x00": ("xz", "xz -dc <"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -dc <"),
    b"PK\x03\x04": ("zip", "unzip -p"),
    b"PK\x05\x06": ("zip", "unzip -p"),
    b"7z\xbc\xaf\x27\x1c": ("7z", "7z x -so"),
    b"Rar!\x1a\x07": ("rar", "unrar p -inul"),
}
_TABLES = {b"PAR1": ("Parquet", "read_parquet"), b"ARROW1": ("Arrow IPC", "read_arrow")}  # maps first bytes of files to format and reader
_MARKS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def as_encoding(encoding: str) -> str:
    """Return Python's name of an encoding.

    Raises `ArgumentError` for an encoding such as UTF-16, in which a delimiter or newline is not a single ASCII byte.
    """
    try:
        name = codecs.lookup(encoding).name
        text = bytes(range(256)).decode(name, "replace")
    except (LookupError, UnicodeError):
        name = text = ""
    if name in ("utf-8", "utf-8-sig", "ascii"):
        return "utf-8"
    if len(text) != 256 or not text.startswith(bytes(range(128)).decode()) or set(text[128:]) == {"\ufffd"}:
        raise ArgumentError(
            f"encoding must be utf-8 or a single-byte extension of ASCII, got {encoding!r}. Use 'cp1252' or 'latin-1', or convert the file "
            "to UTF-8, for example with iconv."
        )
    return name


def check_text(head: bytes, path: str, packing: str | None) -> None:
    """Raise `DataError` for file content that is compressed, an archive, Parquet, Arrow IPC, or text in UTF-16 or UTF-32.

    The argument `head` holds the first bytes of the content, decompressed if the file suffix names a compression, such as gzip. The
    argument `packing` is the name of this compression. If `head` is still compressed, the file was compressed twice.
    """
    compressed = _compression(head)
    if compressed is not None:
        raise _compressed(*compressed, head, path, packing)
    table = _table_format(head)
    if table is not None and not _is_text(head):
        raise other_reader(*table, head, path)
    encoding, marker = _encoding(head)
    if encoding is not None:
        decompress = f"{_unpacked(path, packing)} | " if packing is not None else ""
        convert = f"iconv -f {encoding} -t UTF-8{'' if decompress else f' {quote(without_secrets(path))}'} > {_new_name(path)}"
        raise DataError(
            f"Text is encoded in {encoding}: got {marker} of {encoding}, in line 1 of {without_secrets(path)}. Convert the file to UTF-8: "
            f"{decompress}{convert}"
        )


def other_format(path: str, kind: str) -> DataError | None:
    """Return the error for a local file that is compressed or has another format than `kind`. Return None for an unknown format."""
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
    compressed = _compression(head)
    if compressed is not None:
        return _compressed(*compressed, head, path, "")
    table = _table_format(head)
    if table is not None:
        return None if table[0] == kind else other_reader(*table, head, path)
    if not _is_text(head):
        return None
    if head.lstrip().startswith(b"{"):
        return other_reader("JSON", "read_jsonl", head, path)
    return other_reader("text", "read_csv", head, path) if re.match(rb"[^<\n]*[,;\t|]", head) else None


def other_reader(kind: str, reader: str, head: bytes, path: str) -> DataError:
    """Return the error that names the reader for a file of the format `kind`.

    >>> print(other_reader("Parquet", "read_parquet", b"PAR1", "train.parquet"))
    The format of a file is Parquet: got the bytes b'PAR1', in train.parquet. Read the file with fp.read_parquet('train.parquet').
    """
    shown = without_secrets(path)
    return DataError(f"The format of a file is {kind}: got the bytes {head[:6]!r}, in {shown}. Read the file with fp.{reader}({shown!r}).")


def _table_format(head: bytes) -> tuple[str, str] | None:
    return next((names for sign, names in _TABLES.items() if head.startswith(sign)), None)


def _is_text(head: bytes) -> bool:
    """Return True for bytes without control characters, except tabs and newlines."""
    return all(byte >= 32 or byte in b"\t\n\r" for byte in head)


def _compression(head: bytes) -> tuple[str, str] | None:
    return next((names for sign, names in _SIGNS.items() if head.startswith(sign)), None)


def _compressed(name: str, command: str, head: bytes, path: str, packing: str | None) -> DataError:
    """Return the error for a compressed file. Readers of Parquet and Arrow files never decompress a file and pass `packing=""`."""
    shown, suffix = without_secrets(path), next((suffix for suffix, known in COMPRESSIONS.items() if known == name), None)
    if packing:
        remedy = f"The file is compressed twice. Decompress the file once: {_unpacked(path, packing)} > {_new_name(path, twice=True)}"
    elif name == "zip" and shown.lower().endswith(".xlsx"):
        remedy = f"Read the Excel file with fp.from_table(pandas.read_excel({shown!r}))."
    elif packing is None and suffix is not None:
        remedy = f"Add the suffix: mv {quote(shown)} {quote(shown + suffix)}"
    else:
        remedy = f"Decompress the file: {command} {quote(shown)} > {_new_name(path)}"
    return DataError(f"A file is compressed with {name}: got the bytes {head[:6]!r}, in {shown}. {remedy}")


def _unpacked(path: str, packing: str) -> str:
    """Return the command that decompresses a file to standard output."""
    return f"{next(command for name, command in _SIGNS.values() if name == packing)} {quote(without_secrets(path))}"


def _new_name(path: str, *, twice: bool = False) -> str:
    """Return the file name for the output of a suggested command. `twice=True` keeps the suffix, for a file that was compressed twice."""
    old = Path(without_secrets(path))
    packed = old.suffix.lower() in {*COMPRESSIONS, ".bz2", ".xz", ".lz4", ".7z", ".rar"} and not twice
    return quote(str(old.with_suffix("") if packed else old.with_stem(f"{old.stem}-converted")))


def _encoding(head: bytes) -> tuple[str | None, str]:
    """Return the name of a text encoding, and a description of the bytes that reveal it. The name is None for UTF-8 or unknown text."""
    marked = next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)
    if marked is not None:
        return marked, "the byte order mark"
    # `empty[i][j]` is True if the byte i + 4 * j is NUL.
    empty = [[byte == 0 for byte in head[first : len(head) // 4 * 4 : 4]] for first in range(4)]
    if len(head) < 8 or all(map(all, empty)):
        return None, ""
    for order, (one, two, three, four) in (("BE", empty), ("LE", empty[::-1])):
        if all(one) and all(two) and not any(four):
            return f"UTF-32{order}", "the NUL bytes"
        if not any(two) and not any(four) and sum(one + three) >= max(3, len(one + three) / 2):
            return f"UTF-16{order}", "the NUL bytes"
    return None, ""
