"""What perf/seeds.py is made of: predictions of published figures, tables, and a chart."""
