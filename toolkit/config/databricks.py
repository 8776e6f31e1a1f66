"""Parameters of a Databricks notebook: widgets, and secrets of a scope; elsewhere defaults."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from toolkit.config.client import ClientConfig
from toolkit.errors import NotFound, UsageError

NO_WIDGET = re.compile("InputWidgetNotDefined|no input widget named", re.IGNORECASE)  # text of a Java error


def param(name: str, default: str, *, dbutils: Any = None) -> str:
    """A parameter of a notebook: the value of the widget of that name, or a default.

    Parameters
    ----------
    name
        Name of the widget, and of the parameter of a job.
    default
        Returned if there is no such widget, or outside Databricks.
    dbutils
        The ``dbutils`` of Databricks; the notebook's own if null.
    """
    dbutils = dbutils or _notebooks_own()
    if dbutils is None:
        return default
    try:
        return str(dbutils.widgets.get(name))
    except Exception as error:
        if not NO_WIDGET.search(f"{type(error).__name__}: {error}"):
            raise
        return default


def config_from_scope(
    source: str | Mapping[str, object], secrets: Mapping[str, str], *, scope: str, dbutils: Any = None
) -> ClientConfig:
    """A client configuration with secrets of a scope, which are masked in its texts.

    Parameters
    ----------
    source
        Other properties, as for `ClientConfig`.
    secrets
        Name of the secret in the scope by configuration key: ``{"sasl.password": "kafka-password"}``.
    scope
        Name of the secret scope.
    dbutils
        The ``dbutils`` of Databricks; the notebook's own if null.

    Raises
    ------
    UsageError
        Outside Databricks, for a key that is set twice, and as for `ClientConfig`.
    NotFound
        If the scope or a secret does not exist or may not be read.

    Examples
    --------
    >>> config_from_scope(
    ...     {"bootstrap.servers": "b1:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
    ...      "sasl.username": "ann"},
    ...     {"sasl.password": "kafka-password"}, scope="kafka",
    ... )  # doctest: +SKIP
    """
    dbutils = dbutils or _notebooks_own()
    if dbutils is None:
        raise UsageError(
            "There is no dbutils here, so no secret scope.", do="On another machine, use a client.properties file."
        )
    properties = {"bootstrap.servers": source} if isinstance(source, str) else dict(source)
    if twice := sorted(properties.keys() & secrets.keys()):
        raise UsageError(f"{twice[0]} is set twice: as an argument and from the scope.", do="Keep one of them.")
    return ClientConfig({**properties, **{key: _secret(dbutils, scope, name) for key, name in secrets.items()}})


def _secret(dbutils: Any, scope: str, name: str) -> str:
    try:
        return str(dbutils.secrets.get(scope=scope, key=name))
    except Exception as error:  # noqa: BLE001 - on Databricks it is one of Java's, which has no class here
        kind = type(error).__name__
    raise NotFound(
        f"Secret {name!r} of scope {scope!r} cannot be read ({kind}).",
        do="dbutils.secrets.list(scope) shows its names; reading needs the permission READ on the scope.",
    )


def _notebooks_own() -> Any:
    """The ``dbutils`` in a Databricks notebook's namespace; null elsewhere."""
    main = sys.modules.get("__main__")
    own = getattr(main, "dbutils", None)
    if own is not None or "IPython" not in sys.modules:
        return own
    shell = sys.modules["IPython"].get_ipython()
    return None if shell is None else shell.user_ns.get("dbutils")
