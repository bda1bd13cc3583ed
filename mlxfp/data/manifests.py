"""Manifest of a folder written by `fp.write`: the file `manifest.json`, which lists the data files in order with row counts and hashes."""

import json
from functools import lru_cache
from hashlib import file_digest
from itertools import islice
from pathlib import Path

from attrs import asdict, field, frozen
from attrs.validators import deep_iterable, deep_mapping, ge, instance_of

from mlxfp.support.atomic_files import write_whole
from mlxfp.support.errors import DataError
from mlxfp.support.html import clip, element, fragment, table
from mlxfp.support.progress import Progress

NAME = "manifest.json"
PROGRESS = ".writing"  # subfolder in which an unfinished `write` keeps its progress
_VERSION = 1
_SHOWN = 20  # maximum number of columns and of files shown in a notebook


@frozen
class File:
    """Entry of one data file in a manifest."""

    name: str = field(validator=instance_of(str))  # file name without folders
    rows: int = field(validator=(instance_of(int), ge(0)))
    bytes: int = field(validator=(instance_of(int), ge(0)))
    hash: str = field(validator=instance_of(str))  # SHA-256 in hexadecimal, as printed by sha256sum

    def __attrs_post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name in ("", ".."):
            raise ValueError(f"the file name {self.name!r} is not the name of a file in this folder")

    def is_whole(self, folder: Path) -> bool:
        """Return True if `folder` contains this file with the recorded size and hash."""
        path = folder / self.name
        return path.is_file() and path.stat().st_size == self.bytes and digest(path) == self.hash


@frozen
class Manifest:
    """Result of `write`, with the same content as the file `manifest.json` in the written folder.

    `fingerprint` identifies the pipeline, the sizes and times of the source files, and the arguments of `write`. `skipped` lists each
    row that `on_error` left out, with source, row number, stage and reason.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     manifest = fp.write(fp.from_examples([{"x": 1}, {"x": 2}]), folder, format="parquet")
    ...     manifest.rows, manifest.files[0].name, manifest.damaged()
    (2, 'part-00000.parquet', ())
    """

    folder: str = field(eq=False)
    pipeline: tuple[str, ...] = field(validator=deep_iterable(instance_of(str)))
    fingerprint: str = field(validator=instance_of(str))
    format: str = field(validator=instance_of(str))
    rows: int = field(validator=instance_of(int))
    schema: dict[str, str] = field(validator=deep_mapping(instance_of(str), instance_of(str)))  # Arrow type of each column
    files: tuple[File, ...]
    skipped: tuple[tuple[str, int, str, str], ...]
    versions: dict[str, str]  # versions of the packages that determine the file contents

    def damaged(self) -> tuple[str, ...]:
        """Read all files and return the names of missing or changed files."""
        with Progress("check written files", unit="files", total=lambda: len(self.files)) as progress:
            return tuple(file.name for file in progress.over(self.files) if not file.is_whole(Path(self.folder)))

    def save(self) -> None:
        """Write `manifest.json` atomically, through a temporary file in the progress folder."""
        fields = {"manifest": _VERSION} | {name: value for name, value in asdict(self).items() if name != "folder"}
        content = json.dumps(fields, indent=1, ensure_ascii=False).encode() + b"\n"
        write_whole(Path(self.folder, NAME), content, within=Path(self.folder, PROGRESS))

    def __repr__(self) -> str:
        skipped = f", {len(self.skipped):,} rows left out" if self.skipped else ""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files):,} files"
        return f"Manifest({self.rows:,} rows in {files}, format={self.format!r}, folder={self.folder!r}{skipped})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook, with the columns and the first files."""
        columns = [(clip(name, 100), clip(kind, 100)) for name, kind in islice(self.schema.items(), _SHOWN)]
        files = [(clip(file.name, 100), file.rows, file.bytes) for file in self.files[:_SHOWN]]
        more = [element("p", f"and {len(self.files) - _SHOWN:,} more files", class_="muted")] if len(self.files) > _SHOWN else []
        return fragment(element("p", clip(self, 500)), table(["column", "type"], columns), table(["file", "rows", "bytes"], files), *more)


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder, or return None if the folder has no manifest. Raises `DataError` for an unreadable manifest."""
    if not is_written(folder):
        return None
    path = folder / NAME
    try:
        fields = json.loads(path.read_bytes())
        version = fields.pop("manifest")
        if version == _VERSION:
            fields["files"] = tuple(File(**entry) for entry in fields["files"])
            fields["skipped"] = tuple(map(tuple, fields["skipped"]))
            return Manifest(folder=str(folder), **fields | {"pipeline": tuple(fields["pipeline"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"A manifest cannot be read: {type(error).__name__}: {error}, in {path}. "
            "Write the data again, or read the files by a pattern such as folder/*.parquet."
        ) from error
    raise DataError(
        f"A manifest has version {version!r:.40}, but this mlxfp reads version {_VERSION}, in {path}. Use the mlxfp that wrote the data."
    )


def is_written(folder: Path) -> bool:
    """Return True if a folder holds completely written data."""
    return (folder / NAME).is_file()


@lru_cache(maxsize=1 << 16)
def has_hash(path: str, size: int, modified: int, hash: str) -> bool:
    """Return True if a file has the SHA-256 hash `hash`. The result is cached for the path, size and modification time of the file."""
    return digest(Path(path)) == hash


def listed_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path] | None:
    """Return the files listed in the manifest of a folder.

    Returns None if the folder has no manifest, or if any listed file has a suffix not in `suffixes`. Raises `DataError` for a missing
    file, an unexpected file size, or an unfinished `write`.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        if (folder / PROGRESS).is_dir():
            raise DataError(
                f"An earlier write was interrupted: there is no {NAME} in {folder}. "
                "Call write again with the same arguments to finish the files."
            )
        return None
    if not all(file.name.endswith(suffixes) for file in manifest.files):
        return None
    for file in manifest.files:
        path = folder / file.name
        size = path.stat().st_size if path.is_file() else None
        if size != file.bytes:
            actual = "the file is missing" if size is None else f"has {size:,} bytes"
            raise DataError(
                f"Written data are damaged: {file.name} should have {file.bytes:,} bytes, but {actual}, in {folder}. "
                "Call write again with the same arguments to repair the files."
            )
    return [folder / file.name for file in manifest.files]


def digest(path: Path) -> str:
    """Return the SHA-256 hash of a file, in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
