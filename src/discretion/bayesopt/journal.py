"""The public state of a study on disk, written ahead: a step is charged there before its noise is drawn.

Lines of JSON with checksums, each synchronised before the next thing happens. Nothing in it depends on a record but
through a released gradient, so the file may be shared. A torn last line is cut off: what it would have said did not
happen yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discretion.privacy import PublicError
from discretion.privacy.certificate import canonical, public_json

try:
    import fcntl
except ImportError:  # where there is none, nothing keeps two processes from running the same study
    fcntl = None

__all__ = ["StudyError", "StudyJournal"]

SCHEMA = 1


class StudyError(PublicError):
    """The study cannot go on like this; the message says why and holds nothing private."""


class StudyJournal:
    """PUBLIC. The events of one study, at a path that only one process has open.

    Args:
        path: a file that does not exist, or that of a study to be taken up again.

    Raises:
        StudyError: another process has it open, or it is damaged or no such file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise StudyError(f"Cannot open {self.path}: {error.strerror}.") from None
        try:
            self._lock()
            self.events = self._read()
        except BaseException:
            os.close(self._file)
            raise

    def append(self, event: dict[str, Any]) -> None:
        """Write an event; it is on disk before this returns."""
        body = canonical(public_json(event, "event"))
        line = f"{_digest(body)} {body}\n".encode()
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except BaseException:
            os.ftruncate(self._file, end)  # so that nothing follows half a line
            raise
        if not self.events and os.name == "posix":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self.events.append(json.loads(body))

    def opened(self, header: Mapping[str, Any]) -> str:
        """The name of the study with this header, which becomes the first line of a new file.

        Raises:
            StudyError: the file is of a study with another header.
        """
        header = {"event": "study", "schema": SCHEMA, **public_json(header, "header")}
        if not self.events:
            name = str(uuid.uuid4())
            self.append({**header, "id": name})
            return name
        found = dict(self.events[0])
        name = str(found.pop("id"))
        if canonical(found) != canonical(header):
            raise StudyError(
                f"{self.path} is a study with other parameters, n, ledger, source of noise or diagnostics. All were "
                "fixed with its first line: give the same, or another path."
            )
        return name

    def close(self) -> None:
        """Let other processes have it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StudyError(f"Another process has the study {self.path} open: wait for it, or end it.") from None

    def _read(self) -> list[dict[str, Any]]:
        size = os.fstat(self._file).st_size
        text = os.pread(self._file, size, 0) if hasattr(os, "pread") else os.read(self._file, size)
        whole, _, torn = text.rpartition(b"\n")
        events = []
        for line in whole.split(b"\n") if whole else []:
            checksum, _, body = line.partition(b" ")
            if _digest(body.decode("utf-8", "replace")).encode() != checksum:
                raise StudyError(f"{self.path} is not a study, or it is damaged. Bring back a copy, or begin anew.")
            events.append(json.loads(body))
        if events and events[0].get("schema") != SCHEMA:
            raise StudyError(f"{self.path} was written by another version of this library.")
        if torn:
            os.ftruncate(self._file, len(text) - len(torn))
        return events


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
