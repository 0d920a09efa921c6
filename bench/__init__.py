"""Side-by-side benchmarks. A sub-package is a suite; its `suite.py` has `benchmarks(sized)`."""
