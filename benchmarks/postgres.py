"""A throw-away PostgreSQL server for tests and drills: its own data folder, a Unix socket, no system service.

with Cluster() as cluster:
    ledger = Ledger.create(cluster.url, ...)
    cluster.restart("immediate")
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

Mode = Literal["fast", "immediate"]

PATIENCE = 60
"""Seconds to wait for the server to start, to recover or to stop."""


@cache
def find() -> Path | None:
    """The folder that holds PostgreSQL's programs (`initdb`, `postgres`, `psql`), or None.

    Looks on the PATH, then where Debian puts them, newest version first.
    """
    on_path = shutil.which("postgres")
    folders = [] if on_path is None else [Path(on_path).resolve().parent]
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(versions, key=lambda path: (len(path.parent.name), path.parent.name), reverse=True)
    needed = ("initdb", "postgres", "pg_isready", "psql")
    return next((each for each in folders if all((each / name).exists() for name in needed)), None)


def _account() -> dict[str, Any]:
    """Whom to run the server as: PostgreSQL refuses root, so root steps down to an unprivileged account."""
    if os.geteuid() != 0:
        return {}
    names = {each.pw_name: each for each in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Cluster:
    """A server of its own, started on entering and removed, data and all, on leaving.

    Only this machine can reach it, by a socket in a folder that only the server's account and root may enter.

    Args:
        durable: False spares every wait for the disk (`fsync=off`). What was committed then still survives a crash of
            the server, but not of the machine.

    Attributes:
        url: an empty database, `postgresql://postgres@/postgres?host=FOLDER`.
    """

    def __init__(self, *, durable: bool = True) -> None:
        programs = find()
        if programs is None:
            raise RuntimeError("PostgreSQL's programs are not here. On Debian: apt-get install postgresql.")
        self._programs, self._account, self._durable = programs, _account(), durable
        self._server: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        # A socket's path must be short, so not in a test's own long-named folder.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.url = self._url("postgres")

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def _open(self, program: str, *arguments: str, output: int | None = None) -> subprocess.Popen[bytes]:
        """Start one of PostgreSQL's programs in the server's account."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen[bytes](
                [str(self._programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log,
                cwd=self.folder,
                env={key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LANG"))},
                start_new_session=True,  # an interrupt from the keyboard is for the drill, not for the server
                **self._account,
            )

    def _call(self, program: str, *arguments: str) -> str:
        """Run one of them to its end; what it prints."""
        process = self._open(program, *arguments, output=subprocess.PIPE)
        printed = process.communicate()[0]
        if process.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{self.log()[-2000:]}")
        return printed.decode()

    def __enter__(self) -> Self:
        try:
            if self._account:
                os.chown(self.folder, self._account["user"], self._account["group"])
            data = str(self.folder / "data")
            self._call("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            settings = {
                "listen_addresses": "''",
                "unix_socket_directories": f"'{self.folder}'",
                "shared_buffers": "16MB",
                "max_connections": "60",
                "fsync": "on" if self._durable else "off",
            }
            with (self.folder / "data" / "postgresql.conf").open("a") as file:
                file.writelines(f"{key} = {value}\n" for key, value in settings.items())
            self.start()
        except BaseException:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        """Whether the server's main process is alive."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers, recovery from a crash included."""
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"PostgreSQL does not start:\n{self.log()[-2000:]}")
            if not self.running:
                # Also again after an attempt that failed because children of a killed server were not gone yet.
                self._server = self._open("postgres", "-D", str(self.folder / "data"))
            time.sleep(0.02)

    def _answers(self) -> bool:
        return self.running and self._open("pg_isready", "-q", "-h", str(self.folder)).wait() == 0

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server: `fast` breaks off open transactions, `immediate` is a crash that recovers at the start."""
        if self._server is not None and self.running:
            self._server.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
            self._server.wait(PATIENCE)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start again."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL the server's main process; its children leave when they notice, and `start` recovers."""
        if self._server is not None:
            self._server.kill()
            self._server.wait(PATIENCE)

    def log(self) -> str:
        """What the server and its tools wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the administrator; the rows, unaligned, one a line."""
        target = ("-h", str(self.folder), "-U", "postgres", "-d", database)
        return self._call("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *target, "-c", statement).strip()

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"ledger{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self._url(name)
