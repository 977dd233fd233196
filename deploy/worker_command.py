"""`assay worker`: one member of the consumer group."""

from pathlib import Path
from typing import Annotated

import typer


def worker(
    bundle: Annotated[Path | None, typer.Option(help="The model bundle to serve [ASSAY_BUNDLE].")] = None,
    rules: Annotated[Path | None, typer.Option(help="The rules file [ASSAY_RULES]; the starter set when absent.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where profiles are kept, one folder a worker [ASSAY_DATA_DIR].")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Goes into `decided_by` [ASSAY_WORKER_NAME].")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port of /metrics, /livez, /readyz; 0: any [ASSAY_HTTP_PORT].")] = None,
    end_with: Annotated[int | None, typer.Option(help="End when this process, our parent, is gone.", hidden=True)] = None,
) -> None:
    """Score transactions until SIGTERM or Ctrl-C, then drain and commit.

    Missing topics are made. Scale by starting more of them in the same group, each with a data directory of its own.

    \b
    Examples:
      assay worker --bundle .assay/bundle
      ASSAY_BOOTSTRAP_SERVERS=kafka:9092 assay worker --data-dir /var/lib/assay --http-port 9464
    """
    import asyncio

    if end_with is not None:
        _end_with(end_with)

    from assay.deploy.data_dir import claim_data_dir
    from assay.streams.logs import set_up_logs
    from assay.streams.settings import Settings
    from assay.streams.topics import ensure_topics

    settings = Settings.load(bundle=bundle, rules=rules, data_dir=data_dir, worker_name=name, http_port=http_port)
    set_up_logs(settings.log_level, settings.log_format, worker=settings.decided_by)
    claim = claim_data_dir(settings.data_dir)

    from assay.agents.steer import InForce  # seconds to import: what is wrong with the settings is said before
    from assay.agents.worker import Worker

    in_force = InForce.load(settings)
    topics = asyncio.run(ensure_topics(settings))
    with claim:
        Worker(settings, in_force, topics).run()


def _end_with(parent: int) -> None:
    """Stop in good order when the parent has gone, however and whenever that ended."""
    import os
    import signal
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
