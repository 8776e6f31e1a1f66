"""Tables of the first layout, which version 0.1 wrote, are changed to the present one.

That layout was partitioned by ``is_final``, had columns that SQL must quote and no cluster and topic ids, and kept the
state beside the tables. A run that is killed meanwhile is continued by the next one: the rows of a table are copied
before the table is made again, and its property says whether they are back.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import functions as sf
from pyspark.sql.dataframe import DataFrame
from pyspark.sql.types import StructField, StructType

from toolkit.formats.log_paths import log_path
from toolkit.schema import Table
from toolkit.spark.pipeline.tables.staging_table import IS_FINAL, LOG, STATE
from toolkit.spark.pipeline.tables.stored_tables import KEPT, RUN_ID, STORED_NAMES, stored_type
from toolkit.spark.pipeline.tables.table_store import LAYOUT, LAYOUT_PROPERTY, TableStore

BEGUN = "2, without its rows"
"""Layout of a table that was made again and whose rows are only in the copy."""
UNNEEDED = ("state", "stage")


def migrate(store: TableStore) -> bool:
    """Change tables of the first layout; true if there were any.

    `store`: the store of Delta tables.
    """
    if store.internal.find(STATE.name) is not None or (old_state := store.find(STATE.name)) is None:
        return False
    for name, table in KEPT.items():
        _migrate(store, name, table)
    store.internal.replace(STATE.name, STATE, _state(old_state), run_id=_last_run(old_state))
    for name in UNNEEDED:
        _drop(store, name)
    return True


def _migrate(store: TableStore, name: str, table: Table) -> None:
    stored = store.find(name)
    if stored is None or (layout := store.layout(name)) == LAYOUT:
        return
    copy = f"copy_of_{name}"
    if layout is None:
        store.internal.replace_plain(copy, stored)
        store.create(name, table, others=_other_columns(stored, name, table), layout=BEGUN)
    copied, made = store.internal.find(copy), store.find(name)
    assert copied is not None
    assert made is not None
    store.fill(name, _in_present_layout(copied, made.schema))
    store.spark.sql(f"ALTER TABLE {store.identifier(name)} SET TBLPROPERTIES ('{LAYOUT_PROPERTY}' = '{LAYOUT}')")
    _drop(store.internal, copy)


def _other_columns(stored: DataFrame, name: str, table: Table) -> list[StructField]:
    """Columns of a user."""
    declared = {*stored_type(name, table).names, *table.names, RUN_ID, LOG, IS_FINAL}
    return [field for field in stored.schema if field.name not in declared]


def _in_present_layout(rows: DataFrame, schema: StructType) -> DataFrame:
    old_names = {new: old for old, new in STORED_NAMES.items()}
    have = set(rows.columns)
    columns = []
    for field in schema:
        old = next((each for each in (field.name, old_names.get(field.name)) if each in have), None)
        value = sf.lit(None) if old is None else sf.col(f"`{old}`")
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns)


def _state(rows: DataFrame) -> DataFrame:
    have = set(rows.columns)
    return rows.select(
        *(sf.col(each) if each in have else sf.lit(None).cast("string").alias(each) for each in STATE.names)
    )


def _last_run(state: DataFrame) -> int:
    (row,) = state.agg(sf.max(RUN_ID).alias(RUN_ID)).toArrow().to_pylist()
    return int(row[RUN_ID] or 0)


def _drop(store: TableStore, name: str) -> None:
    """Remove a table that is no longer needed; a folder that only Spark can reach stays, and does no harm."""
    if store.schema is not None:
        store.spark.sql(f"DROP TABLE IF EXISTS {store.identifier(name)}")
    elif isinstance(folder := log_path(f"{store.path}/{name}".removeprefix("file:")), Path):
        shutil.rmtree(folder, ignore_errors=True)
