"""Every setting of Assay, once: `ASSAY_*` in the environment (or a `.env` file), each with its unit and default.

`assay doctor` checks them; `docs/settings.md` is made from this file.
"""

import os
import socket
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from assay.schemas import limits
from assay.schemas.errors import SettingError
from assay.streams.settings_checks import check_together
from assay.tables.digests import Digests
from assay.tables.keyspace import Keyspace


class Settings(BaseSettings):
    """What a worker, a client and the commands are told from outside. Unknown `ASSAY_*` names are left to `assay doctor`."""

    model_config = SettingsConfigDict(env_prefix="ASSAY_", env_file=".env", extra="ignore", frozen=True)

    # -- where things are
    bootstrap_servers: str = Field("127.0.0.1:9092", description="Kafka brokers, HOST:PORT, separated by commas.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT",
        description="How to talk to Kafka. SASL_PLAINTEXT sends the password unencrypted: name it to allow it.",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism, with a SASL_* protocol."
    )
    sasl_username: str | None = Field(None, description="SASL user.")
    sasl_password: SecretStr | None = Field(None, description="SASL password.")
    sasl_token_file: Path | None = Field(
        None, description="File with the bearer token for OAUTHBEARER; read anew for each connection, so it may be replaced."
    )
    ssl_ca_file: Path | None = Field(None, description="CA certificates (PEM) that the brokers' are checked against.")
    ssl_certificate_file: Path | None = Field(
        None, description="Our certificate (PEM), with those between it and its CA, for brokers that ask for one (mTLS)."
    )
    ssl_key_file: Path | None = Field(
        None, description="Its private key (PEM); beside the certificate in its file when absent."
    )
    ssl_key_password: SecretStr | None = Field(None, description="Password of the private key.")
    redis_url: SecretStr = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="Redis or Valkey, 7.0 or newer, for the entity windows; of a cluster any node, or redis://A:6379,B:6379.",
    )
    data_dir: Path = Field(Path(".assay/data"), description="Where a worker keeps its profiles (RocksDB).")
    bundle: Path = Field(Path(".assay/bundle"), description="The model bundle to serve: a directory made by `assay train`.")
    model_form: Literal["compiled", "xgboost", "cuda"] | None = Field(
        None,
        description="How models are computed, else as the bundle says: by our compiled walk, or XGBoost on the CPU or a GPU.",
    )
    rules: Path | None = Field(None, description="Rules file (YAML); the starter set when absent.")
    mapping: Path | None = Field(
        None, description="File that maps transactions of another shape to ours (YAML); the same on every worker."
    )
    rates: Path | None = Field(None, description="Exchange rates (CSV); the illustrative table when absent.")
    control_share: float = Field(
        0.0,
        ge=0,
        le=0.1,
        description="Share of would-be declines that are let through, by a keyed hash, to learn what they are; 0: none.",
    )
    control_amount: float = Field(
        50.0, ge=0, description="What one of them is worth at most, in major units of the base currency."
    )

    # -- topics
    topic_prefix: str = Field(
        "", pattern=r"^[A-Za-z0-9._-]{0,100}$", description="Goes before every topic, group and key: one tenant each."
    )
    transactions_topic: str = Field("transactions", description="Transactions to be scored.")
    decisions_topic: str = Field("decisions", description="One decision for each; the write-ahead log.")
    outcomes_topic: str = Field("outcomes", description="What became of transactions.")
    evidence_topic: str = Field("evidence", description="What decisions were made from.")
    dead_letters_topic: str = Field("dead-letters", description="Records that were refused.")
    control_topic: str = Field("control", description="Desired state: models, rules, lists.")
    rekey: bool = Field(
        False,
        description="Copy transactions to a topic of ours first, keyed by user, for producers that key or partition otherwise. "
        "The same on every worker, and from the beginning: profiles are built from one topic.",
    )
    rekeyed_topic: str = Field("transactions-by-user", description="The topic of those copies.")
    partitions: int = Field(4, ge=1, le=1024, description="Partitions of the topics that `assay` creates.")
    replication_factor: int = Field(1, ge=1, le=7, description="Replicas of the topics that `assay` creates.")
    reply_topics: Annotated[tuple[str, ...], NoDecode] = Field(
        ("*.reply", "f-reply-*"), description="Topics that replies may go to: names and patterns, separated by commas."
    )
    reply_type_id: str | None = Field(
        None,
        pattern=r"^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$",
        max_length=256,
        description="Java class name, written as `__TypeId__` on decisions and replies, for consumers in Spring that need it.",
    )

    schema_registry_url: SecretStr | None = Field(
        None,
        description="Schema registry (Confluent's HTTP API) whose ids framed replies carry; `http://USER:PASSWORD@HOST:PORT` "
        "where it asks for them. Without it framed requests get no reply.",
    )

    # -- the worker
    group: str = Field("assay", description="Consumer group (after the prefix); also the name of the Faust app.")
    worker_name: str = Field("", description="Goes into `decided_by`; host name and process id when empty.")
    http_host: str = Field("0.0.0.0", description="Address of /metrics, /livez and /readyz.")
    http_port: int = Field(9464, ge=0, le=65535, description="Port of /metrics, /livez and /readyz; 0 takes a free one.")
    standby_replicas: int = Field(0, ge=0, le=3, description="Warm copies of each partition's profiles.")
    session_timeout_s: float = Field(6.0, ge=1, le=300, description="Seconds until the group gives up a silent worker.")
    drain_timeout_s: float = Field(4.0, ge=0.1, le=60, description="Seconds for work in flight when partitions are given up.")
    publish_timeout_s: float = Field(
        30.0,
        ge=1,
        le=300,
        description="Seconds for an acknowledgement; then the process ends. Above a leader failover.",
    )
    commit_interval_s: float = Field(1.0, ge=0.05, le=60, description="Seconds between commits.")

    # -- a micro-batch
    batch_transactions: int = Field(
        limits.MAX_BATCH_TRANSACTIONS, ge=1, le=4096, description="Transactions scored together at most."
    )
    batch_bytes: int = Field(
        limits.MAX_BATCH_BYTES, ge=1024, le=limits.MAX_WAITING_BYTES, description="Bytes of a micro-batch at most."
    )
    batch_age_ms: float = Field(
        limits.MAX_BATCH_AGE_MS, ge=0, le=1000, description="Milliseconds that the first one waits at most."
    )
    batch_gather_ms: float = Field(
        limits.BATCH_GATHER_MS, ge=0, le=1000, description="Milliseconds that it waits even where the worker is idle."
    )
    batches_in_flight: int = Field(limits.MAX_BATCHES_IN_FLIGHT, ge=1, le=16, description="Micro-batches that overlap at most.")

    # -- rate limits, by the append times of each partition
    user_rate: float = Field(0.0, ge=0, le=1e6, description="Transactions a second of one user that are judged; 0: no limit.")
    user_burst: int = Field(20, ge=1, le=1_000_000, description="How many of a user's may come at once.")
    producer_rate: float = Field(
        0.0, ge=0, le=1e6, description="Transactions a second of one producer that are judged, on each partition; 0: no limit."
    )
    producer_burst: int = Field(1_000, ge=1, le=1_000_000, description="How many of a producer's may come at once.")
    producer_header: str = Field(
        "ce_source",
        min_length=1,
        max_length=128,
        description="The header that names the producer, `assay-signature` by its key; without it all are one.",
    )
    limited_action: Literal["approve", "review", "decline"] = Field(
        "review", description="What is decided over a limit, without models and rules."
    )

    # -- entities
    redis_timeout_s: float = Field(0.04, gt=0, le=5, description="Seconds for one call to Redis; then the tier falls.")
    redis_shards: int = Field(
        1,
        ge=1,
        le=1024,
        description="Hash tags that entity keys are spread over: 4 for each master of a cluster. A change begins them anew.",
    )
    outcome_days: float = Field(
        90.0,
        ge=1,
        le=3_650,
        description="Days that Redis keeps a decided transaction for its outcomes: 210 bytes each, 740 at most.",
    )
    outcome_patience_s: float = Field(
        limits.OUTCOME_PATIENCE_S,
        ge=0,
        le=600,
        description="Seconds that an outcome, and what is behind it, waits for its transaction to be decided; then it is "
        "unknown. Above the session and a take-over.",
    )
    hash_key: SecretStr = Field(
        SecretStr("assay-development"),
        min_length=1,
        description="Key of the digests that stand for identifiers in profiles and Redis, and for records with a card number. "
        "The same on every worker: what was stored under another one is refused until it is rebuilt.",
    )

    # -- signatures
    signatures: Literal["off", "present", "required"] = Field(
        "off", description="Whose signature of transactions is verified: nobody's, of those that have one, or of all."
    )
    signature_keys_file: Path | None = Field(
        None, description="Public keys (JWK Set) that transactions may be signed with; read again when it changes."
    )
    signing_key_file: Path | None = Field(
        None, description="Private Ed25519 key (PEM) that signs decisions and replies; unsigned when absent."
    )

    # -- tracing
    tracing_endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="Where spans go, as OTLP over HTTP: http://HOST:4318/v1/traces. None are made when absent.",
    )
    tracing_ratio: float = Field(
        0.0, ge=0, le=1, description="Share of the transactions without a `traceparent` that are traced."
    )

    # -- logs
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged.")
    log_format: Literal["auto", "json", "pretty"] = Field("auto", description="auto: pretty on a terminal, else JSON lines.")

    @model_validator(mode="before")
    @classmethod
    def _split(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("reply_topics"), str):
            values["reply_topics"] = tuple(name.strip() for name in values["reply_topics"].split(",") if name.strip())
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_together(self)
        return self

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """The settings of this process; `overrides` (those not None) win over the environment. Raises SettingError."""
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = "ASSAY_" + ".".join(str(part) for part in first["loc"]).upper() if first["loc"] else "the settings"
            field = cls.model_fields.get(str(first["loc"][0])) if first["loc"] else None
            raise SettingError(
                f"{name} can't be used: {first['msg']}",
                expected=(field.description or "") if field else "",
                mend=f"set {name} to a value that fits, or unset it for the default" if field else "set them to fit each other",
            ) from None

    @cached_property
    def decided_by(self) -> str:
        """The worker's name, in decisions and in its log."""
        return self.worker_name or f"{socket.gethostname()}-{os.getpid()}"

    def topic(self, name: str) -> str:
        """A topic's full name, with the prefix."""
        return self.topic_prefix + name

    def digests(self) -> Digests:
        """Of identifiers, under `hash_key`; with caches of its own, so make it once."""
        return Digests(self.hash_key.get_secret_value().encode())

    @cached_property
    def entity_prefix(self) -> str:
        """Begins the keys in Redis."""
        return self.topic("assay")

    def keyspace(self, source: str = "") -> Keyspace:
        """Where keys lie in Redis; source: identity of the topic that offsets are compared within."""
        return Keyspace(self.entity_prefix, source, self.redis_shards, self.digests().fingerprint)

    @cached_property
    def incoming(self) -> str:
        """What upstream systems write to."""
        return self.topic(self.transactions_topic)

    @cached_property
    def transactions(self) -> str:
        """What workers score: the same topic, or that of the copies."""
        return self.topic(self.rekeyed_topic) if self.rekey else self.incoming

    @cached_property
    def decisions(self) -> str:
        return self.topic(self.decisions_topic)

    @cached_property
    def outcomes(self) -> str:
        return self.topic(self.outcomes_topic)

    @cached_property
    def evidence(self) -> str:
        return self.topic(self.evidence_topic)

    @cached_property
    def dead_letters(self) -> str:
        return self.topic(self.dead_letters_topic)

    @cached_property
    def control(self) -> str:
        return self.topic(self.control_topic)

    @cached_property
    def changelog(self) -> str:
        """Of the profiles; named as Faust names it."""
        return f"{self.group_id}-profiles-changelog"

    @cached_property
    def rekeying_group(self) -> str:
        """The group of those who copy; begins their transactional ids, too."""
        return f"{self.group_id}-rekey"

    @cached_property
    def group_id(self) -> str:
        return self.topic(self.group)
