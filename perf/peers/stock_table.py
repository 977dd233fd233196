"""A stock Faust application with a table on RocksDB (the `rocksdict` driver): reads a changelog back, and ends."""

from typing import Any

import faust
from recovering import read_back
from recovery_job import RecoveryJob


def application(job: RecoveryJob) -> faust.App:
    """The application: Faust's own settings, but for what would only be in the way here."""
    app = faust.App(
        f"{job.prefix}assay",
        broker=f"kafka://{job.bootstrap_servers}",
        store="rocksdb://",
        datadir=job.data_dir,
        web_enabled=False,
        topic_partitions=job.partitions,
        topic_replication_factor=1,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        stream_recovery_delay=0.0,
    )
    app.Table("profiles", key_type=bytes, value_type=bytes, partitions=job.partitions, options={"driver": "rocksdict"})
    source = app.topic(
        f"{job.prefix}transactions", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )

    @app.agent(source)
    async def score(stream: Any) -> None:
        async for _ in stream:
            pass

    return app


if __name__ == "__main__":
    read_back(application)
