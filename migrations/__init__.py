"""Alembic's home: `env.py` and dated versions. Imports `connector.tables` and nothing else of the project."""
