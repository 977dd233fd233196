"""How a worker is started as a process of its own, on this machine: by the demo, the benchmarks and the tests."""

import os
import sys
from pathlib import Path

from assay.deploy.services import Running


def worker_command(name: str, data_dir: Path, http_port: int) -> list[str]:
    """The command line of a worker that ends when this process does."""
    return [
        *(sys.executable, "-m", "assay.deploy.cli", "worker", "--end-with", str(os.getpid())),
        *("--name", name, "--data-dir", str(data_dir), "--http-port", str(http_port)),
    ]


def worker_environment(running: Running, bundle: Path, topic_prefix: str) -> dict[str, str]:
    """What it is told besides; ours too, since Kafka may need credentials."""
    return os.environ | {
        "ASSAY_BOOTSTRAP_SERVERS": running.bootstrap_servers,
        "ASSAY_REDIS_URL": running.redis_url,
        "ASSAY_TOPIC_PREFIX": topic_prefix,
        "ASSAY_BUNDLE": str(bundle),
        "ASSAY_HTTP_HOST": "127.0.0.1",
        "ASSAY_LOG_FORMAT": "json",
        "OMP_NUM_THREADS": "1",
    }
