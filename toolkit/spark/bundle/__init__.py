"""A declarative automation bundle for Databricks: jobs, alerts, a dashboard and a Genie space over the tables.

``notebooks/databricks.yml`` names `resources.load_resources`; `databricks bundle deploy` in that folder calls it.
"""
