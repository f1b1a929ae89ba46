"""Lines on disk, written ahead: each is there, whole and synchronised, before the next thing happens.

A line is a checksum of everything up to it and a JSON object, so that a line that was altered, lost or swapped is
noticed. A last line that a crash tore off is cut away: what it would have said has not happened.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from discretion.privacy import PublicError
from discretion.privacy.certificate import canonical, public_json

try:
    import fcntl
except ImportError:  # where there is none, nothing keeps two processes from running the same run
    fcntl = None

__all__ = ["RunError", "Transcript"]


class RunError(PublicError):
    """The run cannot go on like this; the message says why and holds nothing private."""


class Transcript:
    """The lines of one run, in a file that one process has open.

    Args:
        path: a file that does not exist, or one that was begun before.
        private: readable by its owner alone.

    Attributes:
        lines: what was read and appended, as JSON data.

    Raises:
        RunError: the file cannot be opened, another process has it, or it is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, private: bool = False) -> None:
        self.path = Path(path).absolute()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            self._file: int | None = os.open(self.path, flags, 0o600 if private else 0o644)
        except OSError as error:
            raise RunError(f"Cannot open {self.path}: {error.strerror}.") from None
        self.lines: list[dict[str, Any]] = []
        self._digest = ""
        try:
            self._take()
            self._read()
        except BaseException:
            self.close()
            raise

    def append(self, line: dict[str, Any]) -> None:
        """Write a line; it is on disk before this returns."""
        if self._file is None:
            raise RunError(f"{self.path} was closed; open the run again.")
        body = canonical(public_json(line, "line"))
        digest = _chained(self._digest, body)
        end, data = os.lseek(self._file, 0, os.SEEK_END), f"{digest} {body}\n".encode()
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except BaseException:
            os.ftruncate(self._file, end)
            raise
        if not self.lines and os.name == "posix":  # the name of a new file is in its folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.lines.append(json.loads(body))
        self._digest = digest

    def close(self) -> None:
        """Let other processes have it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take(self) -> None:
        if fcntl is not None and self._file is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"Another process has {self.path} open: wait for it, or end it.") from None

    def _read(self) -> None:
        assert self._file is not None
        with os.fdopen(os.dup(self._file), "rb") as file:
            data = file.read()
        whole, _, torn = data.rpartition(b"\n")
        for line in whole.decode("utf-8", "replace").split("\n") if whole else ():
            digest, _, body = line.partition(" ")
            if digest != _chained(self._digest, body):
                raise RunError(f"{self.path} is damaged, or no file of a run. Bring back a copy, or begin anew.")
            self.lines.append(json.loads(body))
            self._digest = digest
        if torn:
            os.ftruncate(self._file, len(data) - len(torn))


def _chained(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode("utf-8", "replace")).hexdigest()
