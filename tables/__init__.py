"""What is remembered: profile rows and their fold, RocksDB, the entity windows in Redis, the list of features.

The fold is pure and compiled; the stores are thin shells around it. Knows schemas, and nothing above.
"""
