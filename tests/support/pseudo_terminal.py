"""Commands on a terminal of a given width, as a person has them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator

from tests.support.shell import Shell

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`engram` with all three standard streams on a terminal; `read` gives what it has written since."""

    def __init__(self, shell: Shell, columns: int, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        terminal = Shell(shell.folder, shell.fresh)
        terminal.env = {"TERM": "xterm-256color"} | {
            name: value for name, value in shell.env.items() if name != "COLUMNS"
        }
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process = terminal.python("-m", "orchestrator", *arguments, **streams, start_new_session=True)
        os.close(theirs)
        self._ours = ours

    def pieces(self) -> Iterator[str]:
        """What it writes, piece by piece, until it ends."""
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # how Linux says that nobody has the other end any more
                piece = b""
            if not piece:
                self.process.wait()
                return
            yield piece.decode(errors="replace").replace("\r\n", "\n")

    def read(self) -> str:
        """All that it writes until it ends."""
        return "".join(self.pieces())

    def until(self, text: str) -> str:
        """What it writes until this text stands there."""
        seen = ""
        for piece in self.pieces():
            seen += piece
            if text in plain(seen):
                return seen
        raise AssertionError(f"it ended without {text!r}: {seen}")


def plain(text: str) -> str:
    """The text without control codes."""
    return CONTROL.sub("", text)
