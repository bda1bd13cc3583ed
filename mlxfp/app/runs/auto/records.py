"""Record of the models that a run includes or excludes. These decisions depend on elapsed time, so a continued run must read the record."""

from pathlib import Path

from attrs import evolve, field, frozen

from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import DECIDED
from mlxfp.app.runs.auto.members import Member
from mlxfp.support.structuring import structure, unstructure


@frozen
class Record:
    """All models of a run in training order, as stored in the file `path`."""

    path: Path
    entries: tuple[Member, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Total training time of the models so far."""
        return sum(entry.seconds for entry in self.entries)

    @property
    def kept(self) -> tuple[Member, ...]:
        """Entries of the included models."""
        return tuple(entry for entry in self.entries if entry.kept)

    def decided(self, entry: Member) -> "Record":
        """Replace the entry of one model, and write the new record to the file. Return the new record."""
        updated = evolve(self, entries=tuple(entry if old.name == entry.name else old for old in self.entries))
        updated.write()
        return updated

    def write(self) -> None:
        write_json(self.path, {"members": [unstructure(entry) for entry in self.entries]})


def read_record(folder: Path) -> Record:
    """Read the record in the folder of a run. A run without a record has no models yet."""
    path = folder / DECIDED
    entries = read_json(path)["members"] if path.is_file() else ()
    return Record(path, tuple(structure(entry, Member, what=str(path)) for entry in entries))
