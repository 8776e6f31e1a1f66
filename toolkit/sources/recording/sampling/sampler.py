"""Take samples of one cluster, reusing connections."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.errors import ToolkitError
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.state.broker_configs import longest_timeout_ms
from toolkit.sources.recording.sampling.sample import Sample, failed_sample, take_sample


@dataclass(kw_only=True)
class Sampler:
    """Takes samples; reconnects after a failed one.

    Parameters
    ----------
    connect
        Returns the cluster, with a timeout of at most the interval.
    interval_ms
        Time between samples; only recorded.
    options
        Other arguments of `take_sample`.
    """

    connect: Callable[[], Cluster]
    interval_ms: int
    options: Mapping[str, Any] = field(default_factory=dict)
    _cluster: Cluster | None = None
    _longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS

    def take(self, due: dt.datetime, before: Sample | None) -> Sample:
        """Take a sample, with an error instead of rows if the cluster cannot be reached.

        Parameters
        ----------
        due, before
            As for `take_sample`.
        """
        started = time.monotonic()
        try:
            cluster = self.cluster()
        except ToolkitError as error:
            seconds = time.monotonic() - started
            return failed_sample(error, due=due, interval_ms=self.interval_ms, before=before, seconds=seconds)
        sample = take_sample(
            cluster,
            due=due,
            interval_ms=self.interval_ms,
            before=before,
            longest_timeout_ms=self._longest_timeout_ms,
            **self.options,
        )
        if sample.error is not None:
            self.close()  # brokers may have moved
        return sample

    def cluster(self) -> Cluster:
        """The cluster; connects if needed.

        Raises
        ------
        ConnectionFailed, AuthenticationFailed
            If no broker can be reached, or it rejects the credentials.
        """
        if self._cluster is None:
            self._cluster = self.connect()
            self._longest_timeout_ms = longest_timeout_ms(self._cluster.client) or self._longest_timeout_ms
        return self._cluster

    def close(self) -> None:
        """Close the connections; the next sample makes new ones."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = None
