"""What a run of several models has decided: written down when it is decided, since a clock says something else each time."""

from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import DECIDED
from mlxfp.app.runs.auto.members import Member
from mlxfp.support.structuring import structure, unstructure


@frozen
class Entry:
    """A member, the seconds that its folds have taken, and whether it is kept; None: not decided yet. `why` says what left it out."""

    name: str
    values: dict[str, Any]
    seconds: float = 0.0
    kept: bool | None = None
    why: str = ""

    @property
    def member(self) -> Member:
        """The member, as it was chosen when the run began."""
        return Member(self.name, self.values)


@frozen
class Record:
    """The members of a run in their order, as its folder has them; a change is written before it is used."""

    path: Path
    entries: tuple[Entry, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """What the members have taken so far."""
        return sum(entry.seconds for entry in self.entries)

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The members that are in the result."""
        return tuple(entry for entry in self.entries if entry.kept)

    def decided(self, entry: Entry) -> "Record":
        """Write another state of a member, and return the record with it."""
        made = evolve(self, entries=tuple(entry if each.name == entry.name else each for each in self.entries))
        made.write()
        return made

    def write(self) -> None:
        """Write the record."""
        write_json(self.path, {"members": [unstructure(entry) for entry in self.entries]})


def read_record(folder: Path) -> Record | None:
    """Read the record of a run's folder; None where nothing has been decided."""
    path = folder / DECIDED
    if not path.is_file():
        return None
    return Record(path, tuple(structure(each, Entry, what=str(path)) for each in read_json(path)["members"]))


def begin_record(folder: Path, members: tuple[Member, ...]) -> Record:
    """Write the members that are to be tried, in their order."""
    made = Record(folder / DECIDED, tuple(Entry(member.name, {**member.values}) for member in members))
    made.write()
    return made
