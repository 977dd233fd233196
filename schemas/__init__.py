"""What crosses a topic, and its wire forms: transactions, decisions, outcomes, evidence, dead letters, headers.

Here too, since everything stands on it: the tree of errors and the bounds that have a name.
No I/O, no clock, and nothing of the rest of the project is imported here.
"""
