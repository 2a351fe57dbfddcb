#!/bin/sh
# start_up.sh - cost of the init of 64, 256 and 1024 ranks in one process; start_up.c judges the counts
exec tests/support/start_up 64 256 1024
