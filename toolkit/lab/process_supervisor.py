"""Processes that never outlive this one, however it ends: normally, by an exception, by Ctrl-C or by SIGKILL.

A small helper process (this file, run as a script) waits for the end of its standard input, which the kernel closes
with this process. It then kills the process group that everything was started in, and deletes the directory.
It needs no messages, so none can be lost; and Ctrl-C in the terminal does not reach that group.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


class ProcessSupervisor:
    """Starts processes; kills them and deletes their directory when it is stopped or this process ends.

    `directory`: working directory of the processes; deleted at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._owner = os.getpid()
        self._started: list[subprocess.Popen[bytes]] = []
        command = [sys.executable, "-I", "-S", __file__, str(directory), str(self._owner)]
        self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._helper.stdout
        with self._helper.stdout as answer:
            self.group = int(answer.readline())

    def start(self, command: list[str], *, log: Path) -> subprocess.Popen[bytes]:
        """Start a process whose output is appended to `log`."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=self.group
            )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """Kill every process started here and delete the directory; returns when both are done.

        A forked child of this process does not stop the processes when it exits.
        """
        if os.getpid() != self._owner:
            return
        assert self._helper.stdin
        # A message, since the pipe is not closed while a forked child of this process holds it open.
        with contextlib.suppress(BrokenPipeError), self._helper.stdin as helper:
            helper.write(b"stop")
        self._helper.wait()
        _end(self.group, self.directory)
        for process in self._started:
            process.wait()


def _end(group: int, directory: Path) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    # A process that is being killed may still add a file during the deletion.
    for _ in range(1000):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            break
        time.sleep(0.01)


def _help(directory: Path, parent: int) -> None:
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    group = _new_group()
    sys.stdout.write(f"{group}\n")
    sys.stdout.flush()
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    _end(group, directory)


def _new_group() -> int:
    """Return a process group of an idle child, so that the helper survives when the group is killed."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.pause()
    os.setpgid(child, child)
    return child


if __name__ == "__main__":
    _help(Path(sys.argv[1]), int(sys.argv[2]))
