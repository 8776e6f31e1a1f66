"""The audit trail: one line of JSON before a request that changes a cluster, and one after it.

Each line is on disk before the next step. So an intent without an outcome means that the process ended in between,
and that the action may have happened; and if no line can be written, nothing is sent.
"""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import getpass
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_state_path

from toolkit.errors import ActionFailed, ActionRefused, AuditFailed, Effect
from toolkit.schema import ACTIONS, Row
from toolkit.schema.recorded import INTENT, OUTCOME, REFUSED, ActionStep, unfinished
from toolkit.sources.recording.recorder import flush
from toolkit.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.live.cluster import Cluster

AUDIT_FILE = "KAFKA_TXN_AUDIT_FILE"
"""Environment variable with the file; by default in the user's state directory."""

LOCK_POLL_S = 0.05
MAX_NAME = 200  # characters, of the 255 of a file: a topic may have 249
REQUIRED = [column.name for column in ACTIONS.columns if not column.nullable]


@dataclass(slots=True)
class ActionOutcome:
    """Columns of the outcome, which the action sets."""

    response: str | None = None
    last_stable_offset_after: int | None = None


class Audit:
    """An append-only file of actions, which any number of processes may write to.

    Parameters
    ----------
    path
        The file; created with its folder for the first line, readable by its owner only. By default
        ``KAFKA_TXN_AUDIT_FILE``, or ``audit.jsonl`` in the user's state directory.
    confirmation
        What a person typed for all actions of a list, ``12 transactions``; each of its lines has it.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, confirmation: str | None = None) -> None:
        self.path = Path(path or os.environ.get(AUDIT_FILE) or user_state_path("kafka-txn") / "audit.jsonl")
        self.confirmation = confirmation

    def __repr__(self) -> str:
        return f"Audit({str(self.path)!r})"

    @contextmanager
    def recording(self, intent: ActionStep) -> Iterator[ActionOutcome]:
        """Write the intent, run the action, and write its outcome.

        Parameters
        ----------
        intent
            The action; time, id, step and user are set here.

        Yields
        ------
        ActionOutcome
            For the columns of the outcome.

        Raises
        ------
        ActionRefused
            If the intent cannot be written; nothing may be sent then.
        AuditFailed
            If the outcome cannot be written: the action happened.
        """
        intent = replace(intent, action_id=uuid.uuid4().hex, step=INTENT)
        try:
            self._write(intent)
        except OSError as error:
            raise self._unwritable(error) from error
        outcome = ActionOutcome()
        try:
            yield outcome
        except BaseException as error:
            self._end(intent, outcome, failure=error)
            raise
        self._end(intent, outcome, failure=None)

    def check(self) -> None:
        """Find out before a plan, which takes seconds, whether a line can be added; the file is made if need be.

        Raises
        ------
        ActionRefused
            If it cannot be opened.
        """
        try:
            os.close(self._open())
        except OSError as error:
            raise self._unwritable(error) from error

    @contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Run the block while no other process or thread with this audit trail does: one of two finds it done.

        Parameters
        ----------
        check
            Called while it waits for the other; what it raises ends the wait.

        Raises
        ------
        ActionRefused
            If the lock file beside the trail cannot be written.
        """
        path = self.path.with_name(f"{self.path.name}.lock")
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ActionRefused(
                f"The lock file {path} cannot be written: {error.strerror or error}.",
                means="Nothing was sent.",
                do="Run it as a user that may write there.",
            ) from error
        try:
            while not _is_locked(file):
                check()
                threading.Event().wait(LOCK_POLL_S)
            yield
        finally:
            os.close(file)

    def refused(self, error: ActionRefused | ActionFailed, intent: ActionStep) -> None:
        """Write that an action was refused; a failure to write it is ignored.

        Parameters
        ----------
        error
            Why.
        intent
            The action; time, id, step and user are set here.
        """
        with suppress(OSError):
            self._write(replace(intent, action_id=uuid.uuid4().hex, step=REFUSED, error=_text(error)))

    def records_path(self, target: str, producer_id: int) -> Path:
        """Where the records of a transaction go, beside the trail; with a number if such a file exists."""
        name = f"{target}-{producer_id}"[-MAX_NAME:]
        return self.path.with_name(f"{self.path.stem}.records") / f"{name}.parquet"

    def rows(self) -> list[Row]:
        """Rows of ``schema.ACTIONS``, as they were written; a line that is cut off is a row with `error`."""
        return [step.row() for step in self._steps()]

    def frame(self) -> pd.DataFrame:
        """The same as a frame of ``schema.ACTIONS``."""
        return ACTIONS.frame(self.rows())

    def unfinished(self) -> list[Row]:
        """Intents without outcome: these actions may have happened."""
        return [step.row() for step in unfinished(self._steps())]

    def _steps(self) -> list[ActionStep]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [_step(line, number) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]

    def _end(self, intent: ActionStep, outcome: ActionOutcome, *, failure: BaseException | None) -> None:
        error = None if failure is None else _text(failure)
        response, lso = outcome.response, outcome.last_stable_offset_after
        try:
            self._write(replace(intent, step=OUTCOME, response=response, last_stable_offset_after=lso, error=error))
        except OSError as unwritten:
            raise AuditFailed(
                f"The outcome of {intent.action} {intent.target} could not be written to {self.path}: "
                f"{unwritten.strerror or unwritten}.",
                effect=_effect(failure),
                means=f"It failed: {error}" if error else "It was done, and answered without an error.",
                do="Note it by hand: the file shows an intent without outcome.",
            ) from unwritten

    def _write(self, step: ActionStep) -> None:
        line = replace(
            step, at=dt.datetime.now(dt.UTC), who=_who(), tool_version=__version__, confirmation=self.confirmation
        ).row()
        text = json.dumps({name: value for name, value in line.items() if value is not None}, default=_plain)
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = os.fstat(file).st_size
            data = f"{_closing(file)}{text}\n".encode()
            if os.write(file, data) < len(data):
                os.ftruncate(file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
        flush(self.path.parent)  # the name of a new file is on disk once its folder is synced

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _unwritable(self, error: OSError) -> ActionRefused:
        return ActionRefused(
            f"The audit file {self.path} cannot be written: {error.strerror or error}.",
            means="Nothing was sent: an action that cannot be recorded is not done.",
            do=f"Name another one by --audit-file or {AUDIT_FILE}.",
        )


def is_on(cluster: Cluster, row: Row) -> bool:
    """Whether a line is about a cluster: by its id, or in a line without one by its address."""
    cluster_id = cluster.cluster_id
    if row.get("cluster_id") is not None and cluster_id is not None:
        return bool(row["cluster_id"] == cluster_id)
    return bool(row["bootstrap_servers"] == cluster.bootstrap_servers)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _closing(file: int) -> str:
    """The end of a line that another process could not finish."""
    size = os.fstat(file).st_size
    return "\n" if size and os.pread(file, 1, size - 1) != b"\n" else ""


def _step(line: str, number: int) -> ActionStep:
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(line)
        if all(isinstance(found[name], str) for name in REQUIRED):
            for entry in found.get("evidence") or ():
                if entry["observed_at"]:
                    entry["observed_at"] = dt.datetime.fromisoformat(entry["observed_at"])
            return ActionStep.of({**found, "at": dt.datetime.fromisoformat(found["at"])})
    error = f"TORN_LINE: line {number} is cut off, or was changed."
    return ActionStep(step="unreadable", action="", bootstrap_servers="", target="", error=error)


def _plain(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="milliseconds")
    raise TypeError(f"{value!r} has no form in JSON")


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may be only a number
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def _effect(failure: BaseException | None) -> Effect:
    """The effect of an action by how it ended."""
    if failure is None:
        return "written"
    if isinstance(failure, ActionFailed):
        return failure.effect
    return "nothing" if isinstance(failure, ActionRefused) else "uncertain"


def _text(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error if str(error) else 'interrupted'}"
    notes = " ".join(getattr(error, "__notes__", ()))
    return f"{text}. {notes}" if notes else text
