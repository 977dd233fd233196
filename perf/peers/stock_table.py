"""A stock Faust application with a table on RocksDB (the `rocksdict` driver): reads a changelog back, and ends."""

from typing import Any

import faust
from job import end_with_parent
from recovery_job import RecoveryJob, Watch


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
    given = RecoveryJob.from_command_line()
    end_with_parent()
    Watch(given).watch()
    worker = faust.Worker(application(given), loglevel="warning", redirect_stdouts=False, quiet=True)
    worker.spinner = None  # it writes to the standard output too
    worker.execute_from_commandline()
