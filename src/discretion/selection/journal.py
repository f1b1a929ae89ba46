"""The write-ahead journal of a search: what makes an interrupted search the same search when it is taken up again.

Before anything is paid the journal names the plan. Once it is paid, and before the first run, the key from which the
number of runs, the candidates and all noise follow is on the disk. A search that is killed is repeated from there: it
ends as it would have ended, and it is paid for once. To draw again instead would be a second search.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from discretion.privacy import PublicError, Randomness
from discretion.selection.streams import KEY_BYTES, SearchKey

try:
    import fcntl
except ImportError:  # where there is none, nothing keeps two processes from running the same search twice over
    fcntl = None

__all__ = ["Journal", "JournalError", "plan_hash"]

_SCHEMA = 1


class JournalError(PublicError):
    """The journal can't be used as it is; the message says what to do. It holds nothing private."""


def plan_hash(plan: Any) -> str:
    """SHA-256 of a public plan (JSON data)."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True, allow_nan=False).encode()).hexdigest()


class Journal:
    """PRIVATE. One search on disk: at most two lines of constant length, readable by their owner alone.

    The first line names the plan and a random public name of the search, the second holds its key. The file's size
    tells nothing of the number of runs. While open it is locked, and the lock ends with the process.

    Args:
        path: a file that does not exist, or the journal of an interrupted search by the same plan.
        plan: hash of the public plan, as `plan_hash` gives it.

    Raises:
        JournalError: another process runs this search; the file is another plan's, is readable by others, or is no
            journal.
    """

    def __init__(self, path: str | os.PathLike[str], plan: str) -> None:
        self.path = Path(path).absolute()
        self._file = self._opened()
        try:
            self._lock()
            self._check_mode()
            lines = self._lines()
            if not lines:
                self._append({"schema": _SCHEMA, "plan": plan, "name": secrets.token_hex(16)})
                lines = self._lines()
            self.name = self._head(lines[0], plan)
            self._key = self._read_key(lines[1]) if len(lines) > 1 else None
        except BaseException:
            os.close(self._file)
            raise

    def key(self, randomness: Randomness) -> SearchKey:
        """The key of the search: the one on disk, or a new one, which is on disk before this returns."""
        if self._key is None:
            drawn = SearchKey.draw(randomness)
            self._append({"key": drawn.key.hex(), "bookable": drawn.bookable})
            self._key = drawn
        return self._key

    def delete(self) -> None:
        """Remove the file: the search has ended."""
        self.path.unlink(missing_ok=True)
        self._synchronise_folder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        os.close(self._file)

    def __repr__(self) -> str:
        return "Journal(PRIVATE)"

    # --- Inside

    def _opened(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise JournalError(f"Cannot open the journal {self.path}: {error.strerror}.") from None

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JournalError(
                f"Another process is running the search of {self.path}: wait for it, or end it."
            ) from None

    def _check_mode(self) -> None:
        state = os.fstat(self._file)
        others = os.name == "posix" and (state.st_mode & 0o077 or state.st_uid != os.geteuid())
        if others or state.st_nlink != 1:
            raise JournalError(
                f"The journal {self.path} belongs to somebody else, or others may read it, and with it the noise. "
                "Whatever was released from it is not protected. Delete it and choose a private place."
            )

    def _lines(self) -> list[dict[str, Any]]:
        """The entries. A torn second line is cut off: no run came after it, as it is synchronised before the first."""
        os.lseek(self._file, 0, os.SEEK_SET)
        text = os.read(self._file, 1 << 16)
        whole, _, torn = text.rpartition(b"\n")
        entries = [_checked(line) for line in whole.split(b"\n")] if text else []
        if any(entry is None for entry in entries) or len(entries) + bool(torn) > 2:
            raise JournalError(
                f"{self.path} is not a journal of a search, or it is damaged. If a search was interrupted, it can't be "
                "taken up again; what it reserved stays spent. Move the file away and begin anew."
            )
        if torn:
            os.ftruncate(self._file, len(text) - len(torn))
        return [entry for entry in entries if entry is not None]

    def _append(self, entry: dict[str, Any]) -> None:
        os.lseek(self._file, 0, os.SEEK_END)
        body = json.dumps(entry, sort_keys=True)
        os.write(self._file, f"{hashlib.sha256(body.encode()).hexdigest()} {body}\n".encode())
        os.fsync(self._file)
        self._synchronise_folder()

    def _head(self, entry: dict[str, Any], plan: str) -> str:
        if entry.get("schema") != _SCHEMA or entry.get("plan") != plan:
            raise JournalError(
                f"{self.path} is the journal of another search, or of another version of this library. To take that "
                "search up again, give the same candidates, score, law and n; otherwise choose another path."
            )
        return str(entry["name"])

    def _read_key(self, entry: dict[str, Any]) -> SearchKey:
        key = bytes.fromhex(entry["key"])
        if len(key) != KEY_BYTES:
            raise JournalError(f"{self.path} is not a journal of a search.")
        return SearchKey(key, entry["bookable"] is True)

    def _synchronise_folder(self) -> None:
        if os.name == "posix":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _checked(line: bytes) -> dict[str, Any] | None:
    """The entry of a line, or None where its checksum is wrong."""
    checksum, _, body = line.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    entry = json.loads(body)
    return entry if isinstance(entry, dict) else None
