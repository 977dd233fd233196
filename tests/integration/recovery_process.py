"""Our app and table, and nothing else of a worker: reads the profiles back, says what it has, and ends; or dies on the way.

    python recovery_process.py BOOTSTRAP PREFIX DATA_DIR DIES

With DIES other than 0 it is killed after so many writes, all but the last of which are on disk by then.
"""

import json
import os
import signal
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import faust

from assay.streams.app import build_app, partitioned_table, raw_topic
from assay.streams.settings import Settings
from assay.tables.profile_table import ProfileTable
from assay.tables.store import RowStore

PARTITIONS = 3


def digest(rows: RowStore) -> dict[str, str]:
    """By partition, of every user and row."""
    return {
        str(partition): sha256(b"".join(key + row for key, row in rows.rows(partition))).hexdigest()
        for partition in range(PARTITIONS)
    }


def die_on_the_way(rows: RowStore, after: int) -> None:
    """Kill this process after so many writes, as kill -9 would."""
    apply, writes = rows.apply, 0

    def counted(partition: int, records: Any, changelog_offset: int) -> None:
        nonlocal writes
        apply(partition, records, changelog_offset)
        writes += 1
        if writes == after - 1:
            for database in rows._databases.values():
                database.flush()
        elif writes == after:
            os.kill(os.getpid(), signal.SIGKILL)

    rows.apply = counted  # type: ignore[method-assign]


def main(bootstrap: str, prefix: str, data_dir: str, dies: str) -> None:
    settings = Settings.load(bootstrap_servers=bootstrap, topic_prefix=prefix, partitions=PARTITIONS, data_dir=Path(data_dir))
    app = build_app(settings, ProfileTable)
    table: ProfileTable = partitioned_table(app, "profiles", PARTITIONS)
    began = {str(partition): table.rows.offset(partition) for partition in range(PARTITIONS)}
    if int(dies):
        die_on_the_way(table.rows, int(dies))

    async def recovered(generation: int, active: Any, standby: Any) -> bool:
        print(json.dumps({"began": began, "digest": digest(table.rows)}), flush=True)
        os._exit(0)

    table.take_over = recovered
    app.agent(raw_topic(app, settings.transactions))(nothing)
    faust.Worker(app, loglevel="error", redirect_stdouts=False, quiet=True).execute_from_commandline()


async def nothing(stream: Any) -> None:
    async for _ in stream.events():
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
