"""Benchmarks: each measures on the machine at hand and writes one result file with its provenance."""
