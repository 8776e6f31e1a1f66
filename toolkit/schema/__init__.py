"""The declaration of every table: columns, types, units, key and order.

pandas dtypes, Arrow and Spark schemas, the empty frame and the documentation derive from these declarations.
Column names are Kafka's field names in snake case. An unknown value is null, never -1; times are UTC in milliseconds.
Each is a record class of one of the modules here, and a constant: ``schema.LOG_TRANSACTIONS``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkit.schema import live, log, recorded
from toolkit.schema.recorded import RECORDED
from toolkit.schema.table import Column, ListOf, Row, StructOf, Table, TableRow, arrow_type, utc

TABLES: Mapping[str, Table] = {
    record.table.name: record.table
    for module in (live, log, recorded)
    for record in vars(module).values()
    if isinstance(record, type) and issubclass(record, TableRow) and record is not TableRow and record.table.key
}
"""Every table by name; what has no key is the struct of a column."""
globals().update({name.upper(): table for name, table in TABLES.items()})
__all__ = ["RECORDED", "TABLES", "Column", "ListOf", "Row", "StructOf", "Table", "arrow_type", "utc"]
__all__ += [name.upper() for name in TABLES]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Table:
        """The constant of a table."""
