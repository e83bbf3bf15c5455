"""What perf/compare.py is made of: scenarios, the systems compared, planning, measuring, and showing the results."""
