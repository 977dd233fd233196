"""Our app and our profile table as a worker has them, and nothing else of it: reads a changelog back, and ends."""

from pathlib import Path
from typing import Any

import faust
from recovering import read_back
from recovery_job import RecoveryJob

from assay.streams.app import build_app, partitioned_table, raw_topic
from assay.streams.settings import Settings
from assay.tables.profile import ROW_BYTES
from assay.tables.profile_table import ProfileTable
from assay.tables.store import RowStore


def application(job: RecoveryJob) -> faust.App:
    """The application; rows of another width than ours are taken as they are."""
    settings = Settings.load(
        bootstrap_servers=job.bootstrap_servers, topic_prefix=job.prefix, partitions=job.partitions, data_dir=Path(job.data_dir)
    )
    app = build_app(settings, ProfileTable)
    table = partitioned_table(app, "profiles", job.partitions)
    if job.row_bytes != ROW_BYTES:
        table.data.rows = RowStore(Path(app.conf.tabledir), job.row_bytes)

    @app.agent(raw_topic(app, settings.transactions))
    async def score(stream: Any) -> None:
        async for _ in stream.events():
            pass

    return app


if __name__ == "__main__":
    read_back(application)
