"""The parts of `make semisyn-real`: films, painted films, runs, and the tables of the study."""
