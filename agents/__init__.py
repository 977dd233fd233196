"""The flow: score, learn, steer, and the worker that wires them. In the order of the steps of the design.

Decides nothing by itself: what is computed lives in tables and models, what is moved in streams.
"""
