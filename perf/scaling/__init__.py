"""What perf/scale.py is made of."""
