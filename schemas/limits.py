"""Every bound, by name (invariant I5). A test feeds one more than each; layouts and facts of protocols stand with those.

Those of a micro-batch are what its settings begin with, each of which has a range of its own.
"""

# A record
MAX_VALUE_BYTES = 64 * 1024
MAX_KEY_BYTES = 1024  # a user id needs 512 at most
MAX_HEADER_BYTES = 16 * 1024  # all names and values together
MAX_CORRELATION_BYTES = 256
MAX_ID_CHARACTERS = 128
MAX_ATTRIBUTES = 32
MAX_ATTRIBUTE_CHARACTERS = 256  # of a name, and of a text value
MAX_AMOUNT = 10**12  # major units
MAX_FUTURE_MS = 5 * 60 * 1000  # how far a timestamp may be ahead of its record's append time
LATE_AFTER_MS = 5 * 60 * 1000  # a timestamp this far behind the append time is marked `late_event`
MAX_REPLY_TOPICS = 1_000
MAX_SIGNATURE_BYTES = 1024  # a detached JWS

# An answer
DEFAULT_DEADLINE_MS = 150  # from the append; leaves 50 of the caller's 200 for the way back
MAX_REASONS = 4

# A micro-batch
MAX_BATCH_TRANSACTIONS = 256
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_BATCH_AGE_MS = 20
BATCH_GATHER_MS = 6
MAX_BATCHES_IN_FLIGHT = 2
MAX_UNREMEMBERED_BATCHES = 16  # decided, and their rows wait to be made durable; as many again are being made so
MAX_WAITING_RECORDS = 2_048  # fetched and not yet taken; then the fetcher waits
MAX_WAITING_BYTES = 16 * 1024 * 1024

# Kafka
MAX_PUBLISHED_BATCH_BYTES = 900_000  # below the broker's default message.max.bytes; less where a topic takes less
LEAST_TOPIC_BYTES = 128 * 1024  # the state of a partition with all the repeats that it may leave open; a decision takes 40 KB
CHANGELOG_FETCHES_WAITING = 8  # recovery ignores back-pressure (Faust's consumer.py:549): 4,096 fetches would be 4 GB
RECOVERY_FETCHES = 6  # applied in one write; 1 keeps reading actives, 1,000 (the default) is 1 GB
STANDBY_FETCHES = 1
CONNECT_TIMEOUT_S = 30.0  # to a broker, which on a busy machine may only just have started
ASK_TIMEOUT_S = 2.0
REPLY_DEADLINE_S = 1.0

# The schema registry
REGISTRY_TIMEOUT_S = 5.0  # for one exchange; no payment waits for it
MAX_REGISTRY_ANSWER_BYTES = 1024 * 1024

MAX_EXPLAINED_ON_DEMAND = 32  # of a micro-batch, those that ask why even of an approval: 81 us each

# Rate limits
MAX_BUCKETS = 20_000  # of users, and of producers, on each partition; of those not full again the oldest are forgotten

# What is remembered
DECISIONS_REMEMBERED_PER_USER = 16
RECENT_DECISIONS = 50_000  # in memory, all users together
MAX_READ_BACK_DECISIONS = 500_000  # at a take-over, all partitions of a worker; about 500 MB
MAX_COPIES_READ_BACK = 500_000  # transactions of one partition that are re-keyed and not committed
RECENT_ROWS = 20_000  # profile rows held in memory, beside those not yet durable
MAX_CACHED_DIGESTS = 65_536  # of identifiers, and as many of addresses, and of places of keys
MAX_CACHED_ZONE_OFFSETS = 16_384  # one for each time zone and day, and for quarters of an hour
MAX_CACHED_HEADER_FORMS = 256  # which headers a record has, in their order; and content types
MAX_CACHED_TEXTS = 4_096  # of moments, reply topics, partitions: each kind
MAX_CACHED_WORDINGS = 65_536  # of a feature at a value

# Entities
MAX_ENTITY_BASE_BYTES = 7_152  # of a compacted row in Redis: every tile of every ring, and 256 users, instruments and devices
MAX_ENTITY_ROW_BYTES = 105_464  # of any: with 4,096 observations more, of 24 bytes each, that no reader has compacted yet
MAX_WAITING_OBSERVATIONS = 50_000  # transactions whose observations Redis has not taken yet; the oldest are dropped
MAX_CAUGHT_UP_AT_ONCE = 512  # of them, sent ahead of a micro-batch that waits for its answer
MAX_REFUSALS = 3  # of one micro-batch, by Redis; then it is dropped, so that others can go on
FAILURES_TO_REST = 5  # calls to Redis in a row; then it is left alone for a while
REDIS_REST_S = 1.0
LOOK_UPS_REST_S = 60.0  # after Redis has said that we may not read rows beside the windows
REDIS_CONNECT_S = 1.0
REDIS_CATCH_UP_S = 1.0  # for one micro-batch that nobody waits for
MAX_REDIRECTS = 4  # of one exchange, from node to node of a Redis Cluster; then it has failed
MAX_REDIS_SEEDS = 32  # nodes of a Redis Cluster that are asked, one after another, who has which slots
MAX_RISK_ROW_BYTES = 3_992  # in Redis: what became of an entity's transactions, with every tile of every ring
MAX_CHANGES_A_CALL = 2_048  # of what became of transactions, sent to Redis together

# Batch features
MAX_BATCH_VALUE_AGE_S = 90 * 24 * 3600.0  # older values are forgotten, as if they had never been loaded
MAX_BATCH_VALUES_PER_ENTITY = 64  # in one row, of all lists of features that have written it; those of the oldest as-of go
BATCH_ROWS_AT_ONCE = 500  # of one command that loads
BATCH_COMMANDS_AT_ONCE = 8  # of one exchange
BATCH_LOAD_S = 10.0  # for one exchange of a load

# What became of transactions
MAX_OUTCOMES_PER_TRANSACTION = 16  # those that say to be known latest
MAX_OUTCOMES_AT_ONCE = 64  # applied together; 2 ms in which nothing else is done
MAX_WAITING_OUTCOMES = 1_024  # read and not yet applied; then no more are read
MAX_UNINDEXED_DECISIONS = 50_000  # transactions decided and not yet kept for their outcomes; the oldest are dropped
DEAD_LETTER_WAIT_S = 1.0  # for those of outcomes to be acknowledged; then the outcomes of other partitions go on
DEAD_LETTER_REST_S = 1.0  # until those that were not taken are tried again
MIN_DEAD_LETTER_BYTES = 2_048  # where its topic takes less than it did: what says why takes less than this
OUTCOME_PATIENCE_S = 15.0  # for the transaction of an outcome to be kept; then it is taken for unknown

# Off the answer path
MAX_WAITING_EVIDENCE_BATCHES = 256
MAX_WAITING_REPLY_BATCHES = 256
MAX_WAITING_UNKNOWN_REPLIES = 1_024  # whose topic is being looked for
MAX_WAITING_REPEATS = 1_024  # whose decision is read back from the topic; they are kept beside the rows, in one record
MAX_WAITING_LOG_LINES = 10_000
MAX_WAITING_SPANS = 8_192
MAX_SPANS_AT_ONCE = 512  # of one export
SPAN_EXPORT_TIMEOUT_S = 2.0
MAX_LOG_KINDS = 1_000  # of lines that are told apart, so that repeated ones are let through seldom

# A client that waits for decisions
MAX_WAITING_CALLS = 10_000
CALLS_REMEMBERED = 50_000  # that have ended: tells a late reply and a second one from a stranger's

# A file that was given
MAX_MAPPING_BYTES = 256 * 1024
MAX_MAPPED_FIELDS = 64
MAX_RULES_FILE_BYTES = 1024 * 1024
MAX_RULES = 256
MAX_PREDICATE_CHARACTERS = 4_096
MAX_MANIFEST_BYTES = 1024 * 1024
MAX_BUNDLE_FILE_BYTES = 64 * 1024 * 1024
MAX_KEYS_FILE_BYTES = 1024 * 1024
MAX_SIGNATURE_KEYS = 1_000  # whose signatures are taken
MAX_TREE_DEPTH = 8  # a complete tree doubles with each level
