"""What is said of data that `write` has written: the files, in order, with their rows and hashes."""

import json
from hashlib import file_digest
from itertools import islice
from pathlib import Path

from attrs import asdict, field, frozen

from mlxfp.support.atomic_files import write_whole
from mlxfp.support.errors import DataError
from mlxfp.support.html import clip, element, fragment, table
from mlxfp.support.progress import Progress

NAME = "manifest.json"
PROGRESS = ".writing"  # the folder of what is known of the files while they are written
_VERSION = 1
_SHOWN = 20  # columns and files in a notebook


@frozen
class File:
    """A file of written data."""

    name: str
    rows: int
    bytes: int
    hash: str  # SHA-256 in hexadecimal digits, as sha256sum prints it; processors have instructions for it

    def is_whole(self, folder: Path) -> bool:
        """Whether the file is there, with the content that was written."""
        path = folder / self.name
        return path.is_file() and path.stat().st_size == self.bytes and digest(path) == self.hash


@frozen
class Manifest:
    """What `write` has written: print it, or read `manifest.json`, which says the same.

    `fingerprint` is that of the pipeline, the sizes and times of the files that it reads, and the arguments of `write`. `skipped` are the
    rows that `on_error` left out: source, row, stage and reason of each.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     manifest = fp.write(fp.from_examples([{"x": 1}, {"x": 2}]), folder, format="parquet")
    ...     manifest.rows, manifest.files[0].name, manifest.damaged()
    (2, 'part-00000.parquet', ())
    """

    folder: str = field(eq=False)
    pipeline: tuple[str, ...]
    fingerprint: str
    format: str
    rows: int
    schema: dict[str, str]  # the type of each column, as Arrow says it
    files: tuple[File, ...]
    skipped: tuple[tuple[str, int, str, str], ...]
    versions: dict[str, str]  # of the packages that decide how the files look

    def damaged(self) -> tuple[str, ...]:
        """Read all files, and return the names of those that are not as they were written."""
        with Progress("check written files", unit="files", total=lambda: len(self.files)) as progress:
            return tuple(each.name for each in progress.over(self.files) if not each.is_whole(Path(self.folder)))

    def save(self) -> None:
        """Write the file, by way of the folder of what is known while data are written: what a killed process leaves goes with that."""
        said = {"manifest": _VERSION} | {name: value for name, value in asdict(self).items() if name != "folder"}
        content = json.dumps(said, indent=1, ensure_ascii=False).encode() + b"\n"
        write_whole(Path(self.folder, NAME), content, within=Path(self.folder, PROGRESS))

    def __repr__(self) -> str:
        skipped = f", {len(self.skipped):,} rows left out" if self.skipped else ""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files):,} files"
        return f"Manifest({self.rows:,} rows in {files}, format={self.format!r}, folder={self.folder!r}{skipped})"

    def _repr_html_(self) -> str:
        """Show the columns and the first files in a notebook."""
        columns = [(clip(name, 100), clip(kind, 100)) for name, kind in islice(self.schema.items(), _SHOWN)]
        files = [(clip(each.name, 100), each.rows, each.bytes) for each in self.files[:_SHOWN]]
        more = [element("p", f"and {len(self.files) - _SHOWN:,} more files", class_="muted")] if len(self.files) > _SHOWN else []
        return fragment(element("p", clip(self, 500)), table(["column", "type"], columns), table(["file", "rows", "bytes"], files), *more)


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder; None: it has none. Raises `DataError` for one that cannot be read."""
    if not is_written(folder):
        return None
    path = folder / NAME
    try:
        said = json.loads(path.read_bytes())
        version = said.pop("manifest")
        if version != _VERSION:
            raise DataError(
                f"A manifest has version {version}, and this mlxfp reads version {_VERSION}, in {path}. Use the mlxfp that wrote it."
            )
        said["files"] = tuple(File(**each) for each in said["files"])
        said["skipped"] = tuple(map(tuple, said["skipped"]))
        return Manifest(folder=str(folder), **said | {"pipeline": tuple(said["pipeline"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"A manifest cannot be read: {error!r}, in {path}. Write the data again, or name its files by a pattern."
        ) from error


def is_written(folder: Path) -> bool:
    """Whether a folder has written data, all of them."""
    return (folder / NAME).is_file()


def listed_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path] | None:
    """Return the files that the manifest of a folder lists, where these have one of the suffixes; None: it has no manifest.

    Raises `DataError` where a file is missing or has another size, and where the data were not written to the end.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        if (folder / PROGRESS).is_dir():
            raise DataError(
                f"Data were not written to the end: there is no {NAME} in {folder}. Call write again, which goes on where it ended."
            )
        return None
    if not all(each.name.endswith(suffixes) for each in manifest.files):
        return None
    for each in manifest.files:
        path = folder / each.name
        size = path.stat().st_size if path.is_file() else None
        if size != each.bytes:
            found = "there is no such file" if size is None else f"it has {size:,} bytes"
            raise DataError(
                f"Written data are damaged: {each.name} should have {each.bytes:,} bytes, and {found}, in {folder}. "
                "Call write again, which makes such files again."
            )
    return [folder / each.name for each in manifest.files]


def digest(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
