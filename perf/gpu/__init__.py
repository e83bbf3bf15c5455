"""What perf/gpu/quarter_hour.sh is made of: the kit that travels, the steps, running them in time, and their results."""
