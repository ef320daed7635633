"""Parts of `make -f experiments/Makefile semisyn-real`: real and synthetic images, runs, and the tables of the
study."""
