"""The postmortem of what a panel shows and did, as a page beside the panel and as files to download."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.history.findings_over_time import close_by_log
from toolkit.schema.coerce import records_of
from toolkit.schema.log import LogTransaction
from toolkit.views.document import Connection
from toolkit.views.report import Report, report
from toolkit.views.report.incident import tables_around

if TYPE_CHECKING:
    from toolkit.schema import Row
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster


def postmortem(
    cluster: Cluster, findings: Sequence[Finding], *, actions: Sequence[Row], remark: Callable[[str], object]
) -> Report:
    """The postmortem of some findings: those that have ended are closed by their markers in the log.

    `cluster`: the cluster, whose logs are read around them.
    `findings`: the findings, as of the last time that they were open.
    `remark`: called with a sentence about what cannot be read.
    """
    tables = tables_around(findings, cluster, remark=remark)
    closed = close_by_log(findings, records_of(tables.get("log_transactions"), LogTransaction))
    return report(closed, actions=actions, connection=Connection.of(cluster), **tables)


def postmortem_html(page: Report) -> str:
    """The page in a frame, and links that save it without a server."""
    links = (
        f'<a download="postmortem.{suffix}" href="data:{kind};base64,{_encoded(text)}">Download postmortem.{suffix}</a>'
        for suffix, kind, text in (("html", "text/html", page.html), ("md", "text/markdown", page.markdown))
    )
    return f"<p>{' '.join(links)}</p>{page._repr_html_()}"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
