"""What Spark runs in processes that it sends no packages to: it brings this package along.

Spark puts what `toolkit.spark.ship` sends on the path of its workers, but not of the process that keeps a stream, nor,
under Connect, of the one that runs ``foreachBatch`` (4.0 to 4.3). So what is pickled for these is made of functions
that need nothing but Python and pyspark, with the package as bytes beside them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["carried_function", "carried_source"]


def carried_source(source: type[DataSource], package: bytes) -> type[DataSource]:
    """A data source that brings its package along.

    Parameters
    ----------
    source
        The data source.
    package
        A zip of pure Python packages, its own among them.
    """
    load = _loading(source, package)
    format_name = source.name()

    class Carried(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            found: StructType = load()(self.options).schema()
            return found

        def reader(self, schema: StructType) -> DataSourceReader:
            found: DataSourceReader = load()(self.options).reader(schema)
            return found

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            found: DataSourceStreamReader = load()(self.options).streamReader(schema)
            return found

    return Carried


def carried_function(function: Callable[..., None], package: bytes) -> Callable[..., None]:
    """A function that brings its package along; `package` is as for `carried_source`."""
    load = _loading(function, package)

    def carried(*arguments: Any) -> None:
        load()(*arguments)

    return carried


def _loading(thing: object, package: bytes) -> Callable[[], Any]:
    """What gives a thing, once its package can be imported; nested, so that it is pickled with all it holds."""
    pickled = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    name = __name__.partition(".")[0]
    loads = pickle.loads

    def load() -> Any:
        import importlib.util
        import os
        import sys

        if importlib.util.find_spec(name) is None:
            memory = os.memfd_create(name)  # Linux has it, and nothing is left behind, however the process ends
            with open(memory, "wb", closefd=False) as file:
                file.write(package)
            sys.path.append(f"/proc/self/fd/{memory}")
        return loads(pickled)

    return load
