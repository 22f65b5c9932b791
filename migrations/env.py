"""Alembic's entry: runs the versions on the connection that `connector.log.upgrade` hands over.

By hand (`alembic revision --autogenerate -x db=PATH`) it opens the file itself.
"""

from alembic import context
from sqlalchemy import Connection, create_engine

from connector.tables import metadata


def run(connection: Connection) -> None:
    # SQLite cannot alter most of a table in place: batch mode copies it.
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is None:
    path = context.get_x_argument(as_dictionary=True).get("db")
    if path is None:
        raise SystemExit("name the log: alembic -x db=PATH …, or use: vllm-restore db upgrade --db PATH")
    with create_engine(f"sqlite:///{path}").begin() as own:
        run(own)
else:
    run(connection)
