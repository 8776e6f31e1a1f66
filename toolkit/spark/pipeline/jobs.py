"""Jobs that run in parallel, each as soon as its dependencies are done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

Progress = Callable[[str, bool], object]
AT_ONCE = 4  # while Spark plans a job, or runs its last task, another job keeps the executors busy


class Job(NamedTuple):
    """A function, and the names of the jobs that it depends on."""

    do: Callable[[], Any]
    after: Collection[str] = ()


def run_jobs(jobs: Mapping[str, Job], *, progress: Progress) -> dict[str, Any]:
    """Run jobs and return their results by name. After a failure, no further job starts.

    `jobs`: the jobs by name.
    `progress`: called with the name of a job and false when it starts, and true when it is done.
    """
    results: dict[str, Any] = {}

    def do(name: str) -> str:
        progress(name, False)
        results[name] = jobs[name].do()
        progress(name, True)
        return name

    sorter = TopologicalSorter({name: job.after for name, job in jobs.items()})
    sorter.prepare()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running: set[Future[str]] = set()
        while sorter.is_active():
            running |= {pool.submit(do, name) for name in sorter.get_ready()}
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                sorter.done(each.result())
    return results
