"""Credentials that Spark must not show.

What Spark shows of reader options, tried on 4.0 and 4.3 with a password as an option, at log level INFO:

- Classic Spark shows no options of a reader: not in plans, on the pages of its UI, in its REST answers, in
  event logs, errors, progress or checkpoints. Those of a statement (``CREATE VIEW ... USING ... OPTIONS``) it shows in
  the plan of that statement, but for what it takes for a password.
- Spark Connect shows them all. It keeps the text of every request for the pages Connect, Jobs, Stages and SQL, in
  their REST answers, and in the event log; statements likewise.

Not preventable: Spark 4.0 quotes a statement that it cannot parse in its error. So put no secrets in SQL.
All other texts pass through ``spark.sql.redaction.string.regex``, which can be set for a session: `hide_secrets`
does.

A file (``commandConfig``) and ``register(spark, config=...)`` never come into such a text. The latter travels inside
the pickled class of the data source, of which Connect shows eight bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.config import ClientConfig
from toolkit.config.keys import SECRET_KEY
from toolkit.errors import UsageError
from toolkit.spark.datasources.reader_options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ConnectingSource", "connecting", "hide_secrets", "refuse_secrets"]

SETTING = "spark.sql.redaction.string.regex"
KEY = rf"kafka\.[\w.-]*(?:{SECRET_KEY.pattern.replace('$', '')})[\w.-]*"
IN_REQUEST = rf'key: "{KEY}"\s+value: "(?:[^"\\]|\\.)*+"?'
IN_TEXT = (
    rf"""{KEY}[\\'"`]*\s*(?:->|=|\\*['"]).*"""  # in a statement or its plan: to the end, whatever the value may be
)
SHOWN = f"(?is){IN_REQUEST}|{IN_TEXT}"


class ConnectingSource:
    """What a data source that connects is registered with.

    Attributes
    ----------
    registered
        How to connect if the options do not set it.
    hides_secrets
        Whether Spark is configured to hide secrets in options.
    """

    registered: ClassVar[ClientConfig | None] = None
    hides_secrets: ClassVar[bool] = False


def hide_secrets(spark: SparkSession) -> bool:
    """Have Spark hide the secrets of reader options wherever it shows the text of a request or of a statement.

    Patterns configured before stay.

    Returns
    -------
    bool
        Whether this session lets us set that; some managed ones do not.
    """
    value = spark.conf.get(SETTING, "") or ""
    if SHOWN in value:
        return True
    try:
        spark.conf.set(SETTING, f"(?:{value})|{SHOWN}" if value else SHOWN)
    except Exception:  # noqa: BLE001 - each Spark has an error of its own for what may not be set
        return False
    return True


def connecting(source: type[Any], *, config: ClientConfig | None, hides_secrets: bool) -> type[Any]:
    """A data source that knows how to connect.

    Parameters
    ----------
    source
        A class with `ConnectingSource` for a base.
    config, hides_secrets
        See `ConnectingSource`.
    """
    # Not the class of its module: so it is pickled with what it holds.
    return type(source.__name__, (source,), {"registered": config, "hides_secrets": hides_secrets})


def refuse_secrets(options: Options) -> None:
    """Refuse secrets as options, where Spark may show them.

    Raises
    ------
    UsageError
        It names the option, not its value.
    """
    for name in options:
        if name.lower().startswith("kafka.") and SECRET_KEY.search(name.lower()):
            raise UsageError(
                f"The option {name} holds a secret, which Spark Connect would show on its pages.",
                do="Call toolkit.spark.register(spark) first, which hides it where Spark allows that; or "
                "register(spark, config=...); or the option commandConfig, with the path of a client.properties.",
            )
