"""A declarative automation bundle for Databricks: jobs, alerts, a dashboard and a Genie space over the tables.

``notebooks/databricks.yml`` names `resources.load_resources`; `databricks bundle deploy` in that folder calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.bundle.bundle_sql import DATASETS

__all__ = ["DATASETS"]

__getattr__ = lazy_exports(__name__, {"DATASETS": "toolkit.spark.bundle.bundle_sql"})
