"""The Faust app: membership, assignment, table recovery, standbys and shutdown are Faust's; records and commits go our way."""

from typing import Any

import faust
from yarl import URL

from assay.schemas.limits import RECOVERY_FETCHES, STANDBY_FETCHES
from assay.streams.header_names import read_any_header_name
from assay.streams.kafka import client_options
from assay.streams.micro_batches import WaitingRecords
from assay.streams.settings import Settings
from assay.streams.transport import FlowControl, Transport


def build_app(settings: Settings, table: type[faust.Table]) -> faust.App:
    """A Faust app on the record-batch transport, not yet started.

    Args:
        table: the class of its tables.
    """
    brokers = [URL(f"kafka://{server.strip()}") for server in settings.bootstrap_servers.split(",") if server.strip()]
    app = faust.App(
        settings.group_id,
        broker=brokers,
        broker_credentials=_credentials(settings),
        store="rocksdb://",  # names a URL scheme only: the table brings its own store
        datadir=settings.data_dir,
        Table=table,
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=settings.partitions,
        topic_replication_factor=settings.replication_factor,
        topic_disable_leader=True,
        topic_allow_declare=False,  # `ensure_topics` has made them; a worker needs no right to
        web_enabled=False,  # the worker's own port serves metrics and health, and no table data
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / 3,
        broker_commit_interval=settings.commit_interval_s,
        table_standby_replicas=settings.standby_replicas,
        stream_wait_empty=True,
        stream_recovery_delay=0.0,
        recovery_consistency_check=False,  # ours says what to do (tables/changelog.py)
    )
    read_any_header_name()
    app.flow_control = FlowControl()
    app.transport = Transport(brokers, app)
    app.waiting = WaitingRecords()
    app.batched_topics = {settings.transactions}
    app.full = {}  # other topics that are handed over whole, and whether they have no room
    return app


def partitioned_table(app: faust.App, name: str, partitions: int) -> Any:
    """A table of bytes whose changelog has these partitions; recovery applies a few whole fetches at a time."""
    return app.Table(
        name,
        key_type=bytes,
        value_type=bytes,
        partitions=partitions,
        recovery_buffer_size=RECOVERY_FETCHES,
        standby_buffer_size=STANDBY_FETCHES,
    )


def raw_topic(app: faust.App, name: str) -> Any:
    """A topic whose keys and values stay bytes (or lists of records): a JSON default would refuse a list."""
    return app.topic(name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


def _credentials(settings: Settings) -> Any:
    options = client_options(settings)
    context = options.get("ssl_context")  # None with SASL is SASL_PLAINTEXT: only where the settings name it
    if "sasl_oauth_token_provider" in options:
        return faust.OAuthCredentials(oauth_cb=options["sasl_oauth_token_provider"], ssl_context=context)
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            ssl_context=context,
            mechanism=options["sasl_mechanism"],
        )
    return faust.SSLCredentials(context) if context is not None else None
