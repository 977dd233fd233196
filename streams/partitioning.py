"""Where a key lies: as Kafka's own clients have it, and so the contract."""

from aiokafka.partitioner import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Where the Java clients' default partitioner puts a key."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)
