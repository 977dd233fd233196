"""All it takes to run it: the command line, development services, the demo, the doctor.

The outermost layer: imports everything, is imported by nothing.
"""
