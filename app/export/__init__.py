"""The whole log as files: Parquet, CSV, JSON lines. `rows` reads, `formats` writes, `archive` puts them on disk.

The command line and `routes/export.py` import it.
"""
