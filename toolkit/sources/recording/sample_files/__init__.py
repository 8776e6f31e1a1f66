"""The Parquet files of a recording: names, reading, writing, compaction."""
