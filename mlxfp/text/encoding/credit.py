"""What may be lost in trying a faster way: by the clock, as no constant fits every machine, tokenizer and text."""

from math import inf

from attrs import define

CALL_BYTES = 12  # of text, in whose time a tokenizer does what it does for a text beside its bytes

_FIRST = 4e-3  # seconds that may be lost before anything was saved
_SHARE = 0.01  # of all time, what may be lost
_MOST = 16e-3  # seconds that may be saved up, or
_PART = 0.2  # of what was saved last, if that is more
_PACE = 0.25e-6  # seconds for a byte, until it is timed
_LEAST = 1e-12  # seconds for a byte, as a clock may stand still
_RARELY = 200  # times as much text goes by in between as is timed
_WEIGHT, _ODD = 0.5, 4  # of one timing, and by how much it may differ: the process may have been stopped in it


@define
class Credit:
    """How long a way that may be faster can still be tried: some milliseconds at first, a share of all time, and what it saved.

    So whatever the texts are, they take little more than that share longer than without trying. What was saved is the time that the plain
    way would have taken. That is timed now and then, where it is not taken anyway: from what the tries tell, it could not be known.

    >>> credit = Credit(left=0.0, pace=1e-6)
    >>> credit.earn(1000)  # bytes, so a millisecond for the plain way
    >>> round(credit.left * 1e6)
    10
    >>> credit.settle(1000, 3e-3)
    >>> round(credit.left * 1e6)
    -1990
    """

    left: float = _FIRST  # seconds, less than none where a try took longer than thought
    pace: float = _PACE  # seconds for a byte, of the plain way; a text has `CALL_BYTES` more than are in it
    since: float = inf  # bytes that went by since that was timed

    def earn(self, size: float) -> None:
        """Put a share aside of the time for so many bytes."""
        self.left += _SHARE * self.pace * size
        self.since += size

    def due(self, size: float) -> bool:
        """Whether so many bytes are to go the plain way, and to be timed."""
        return self.since >= _RARELY * size

    def settle(self, size: float, seconds: float) -> None:
        """Take a try into account that encoded so many bytes, or none, in this time."""
        saved = self.pace * size
        left = self.left + saved - seconds
        self.left = left if left < _MOST else min(left, max(_MOST, _PART * saved))

    def timed(self, size: float, seconds: float) -> None:
        """Take into account how long the plain way took."""
        if size:
            pace = max(seconds / size, _LEAST)
            if self.since < inf:
                pace = self.pace + _WEIGHT * (min(max(pace, self.pace / _ODD), self.pace * _ODD) - self.pace)
            self.pace, self.since = pace, 0.0
