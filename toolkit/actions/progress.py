"""How far an action has come, so that every failure says which of three it is: nothing, written, or uncertain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from toolkit.errors import ActionFailed, ActionRefused, AuditFailed, Effect, ToolkitError

T = TypeVar("T")
POLL_S = 0.05  # how soon a cancelled wait ends


@dataclass(slots=True, kw_only=True)
class Progress:
    """The steps of an action that change its effect, and what to say of it when a step fails."""

    # nothing, written, uncertain: a sentence for each effect
    nothing: str
    written: str
    uncertain: str
    find_out: str  # what to run to find out
    cancel: threading.Event | None = None  # set by another thread to cancel the action; null if nobody can
    effect: Effect = "nothing"  # the effect so far

    def sending(self) -> None:
        """The request leaves next: from here to its response, its effect is uncertain."""
        self.check_cancelled()
        self.effect = "uncertain"

    def check_cancelled(self) -> None:
        """Raise if the action was cancelled.

        Raises ActionRefused if nothing was written so far, else ActionFailed: it was not undone.
        """
        if self.cancel is None or not self.cancel.is_set():
            return
        if self.effect == "nothing":
            raise ActionRefused("The action was cancelled.", means=self.nothing)
        raise ActionFailed("The action was cancelled.", effect=self.effect, means=self._means, do=self.find_out)

    def wait(self, work: Callable[[], T]) -> T:
        """The result of work that only reads, or sends one request; a cancelled wait does not wait for its end."""
        if self.cancel is None:
            return work()
        pool = ThreadPoolExecutor(1, thread_name_prefix="kafka-txn-action")
        try:
            running = pool.submit(work)
            while not wait([running], timeout=POLL_S).done:
                self.check_cancelled()
            return running.result()
        finally:
            pool.shutdown(wait=False)

    @contextmanager
    def stated(self) -> Iterator[None]:
        """Every error of the block leaves it with the effect.

        Raises ActionFailed instead of another error of this package that is not itself about the effect.
        """
        try:
            yield
        except (ActionRefused, ActionFailed, AuditFailed):
            raise
        except ToolkitError as error:
            raise ActionFailed(
                error.what,
                effect=self.effect,
                code=getattr(error, "code", None),
                means=self._means,
                do=" ".join(each for each in (error.do if self.effect == "nothing" else "", self._do) if each),
            ) from error
        except BaseException as error:
            error.add_note(" ".join(each for each in (self._means, self._do) if each))
            raise

    @property
    def _means(self) -> str:
        return {"nothing": self.nothing, "written": self.written, "uncertain": self.uncertain}[self.effect]

    @property
    def _do(self) -> str:
        return "" if self.effect == "nothing" else self.find_out
