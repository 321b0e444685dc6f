"""Alembic runs this: the engine is handed in by ``db.schema``."""

from alembic import context

from pinfold.db.models import Base


def run() -> None:
    engine = context.config.attributes["engine"]
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
        with context.begin_transaction():
            context.run_migrations()
        if connection.in_transaction():
            connection.commit()


run()
