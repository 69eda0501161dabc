"""Commands on a terminal of a given width."""

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
    """`engram` with all three standard streams on a terminal. `read` returns the output so far unread."""

    def __init__(self, shell: Shell, columns: int, *arguments: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        terminal = Shell(shell.folder, shell.fresh)
        terminal.env = {"TERM": "xterm-256color"} | {
            name: value for name, value in shell.env.items() if name != "COLUMNS"
        }
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = terminal.python("-m", "orchestrator", *arguments, **streams, start_new_session=True)
        os.close(slave)
        self._ours = master

    def pieces(self) -> Iterator[str]:
        """The output in pieces, until the command ends."""
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # on Linux: the other end is closed
                piece = b""
            if not piece:
                self.process.wait()
                return
            yield piece.decode(errors="replace").replace("\r\n", "\n")

    def read(self) -> str:
        """The remaining output until the command ends."""
        return "".join(self.pieces())

    def until(self, text: str) -> str:
        """The output until it contains a text."""
        output = ""
        for piece in self.pieces():
            output += piece
            if text in plain(output):
                return output
        raise AssertionError(f"it ended without {text!r}: {output}")


def plain(text: str) -> str:
    """The text without control codes."""
    return CONTROL.sub("", text)
