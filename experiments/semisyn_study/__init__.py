"""The parts of `make -f experiments/Makefile semisyn-real`: films, painted films, runs, and the tables of the study."""
