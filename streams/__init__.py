"""How records arrive and leave: the Faust app, the record-batch transport, micro-batches, publisher, client, simulator.

Settings, metrics and logs live here, since this is where the process meets the world. Knows nothing of models.
"""
