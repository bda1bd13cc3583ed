"""What a terminal shows of what is written to it: enough of one for bars."""

import fcntl
import io
import os
import re
import struct
import termios
from contextlib import contextmanager


class Terminal(io.StringIO):
    """A file that says that it is a terminal; without a size of its own, it has that of the variable COLUMNS."""

    def isatty(self):
        return True


def screens(text):
    """Yield the lines of the screen, without spaces at their ends, whenever the cursor goes to the start of a line."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\r|\n|\x1b\[A|[^\r\n\x1b]+|\x1b", text):
        if piece == "\r":
            yield [line.rstrip() for line in lines]
            column = 0
        elif piece == "\n":
            yield [line.rstrip() for line in lines]
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[A":
            row -= 1
        else:
            assert piece != "\x1b", "a character that terminals obey was passed on"
            lines[row] = f"{lines[row]:{column}}"[:column] + piece + lines[row][column + len(piece) :]
            column += len(piece)
    yield [line.rstrip() for line in lines]


@contextmanager
def terminal(columns):
    """Open a real terminal of so many columns; yield a file to write to, and a function that returns what was written so far."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    attributes = termios.tcgetattr(writer)
    attributes[1] &= ~termios.OPOST  # lines end as they were written
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    os.set_blocking(reader, False)
    seen = b""

    def written():
        nonlocal seen
        file.flush()
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except BlockingIOError:
                return seen.decode()
            seen += part

    with open(writer, "w", encoding="utf-8") as file:  # noqa: PTH123  # it has no path
        yield file, written
    os.close(reader)
