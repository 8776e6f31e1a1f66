"""The flight recorder: samples of a live cluster at an interval, as Parquet files, and what they are read with."""
