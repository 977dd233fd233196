"""From a feature row to a verdict: bundles, ensemble, reasons, rules, policy; and training, which makes bundles.

Pure functions over arrays, but for reading and writing the files of a bundle. Knows tables and schemas.
"""
