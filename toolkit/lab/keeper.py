"""Processes that never outlive this one, however it ends: normally, by an exception, by Ctrl-C or by SIGKILL.

A small helper process (this file, run as a script) waits for the end of its standard input, which the kernel closes
with this process. It then kills the process group that everything was started in, and deletes the directory.
Nothing needs to be told to it, so nothing can be forgotten; and a Ctrl-C in the terminal does not reach that group.
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

__all__ = ["Keeper"]


class Keeper:
    """Starts processes, and on its own end or this process's, kills them and deletes their directory.

    Parameters
    ----------
    directory
        Where the processes write; deleted at the end.
    """

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-I", "-S", __file__, str(directory), str(os.getpid())]
        self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self._helper.stdout
        with self._helper.stdout as answer:
            self.group = int(answer.readline())
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], *, log: Path) -> subprocess.Popen[bytes]:
        """Start a process whose output is appended to `log`."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=self.group
            )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """Kill every process started here and delete the directory; returns when both are done."""
        assert self._helper.stdin
        self._helper.stdin.close()
        self._helper.wait()
        for process in self._started:
            process.wait()


def main(directory: str, parent: int) -> None:
    group = _new_group()
    sys.stdout.write(f"{group}\n")
    sys.stdout.flush()
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    while os.path.exists(directory):
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.01)


def _new_group() -> int:
    placeholder = os.fork()
    if not placeholder:
        os.setpgid(0, 0)
        signal.pause()
    os.setpgid(placeholder, placeholder)
    return placeholder


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
