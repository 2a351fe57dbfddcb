#!/bin/sh
# start_up.sh - what joining costs at 64, 256 and 1024 ranks of one process; start_up.c judges the counts
exec tests/support/start_up 64 256 1024
