#!/bin/bash
# check_limit.sh - the limit of a test (tests/limit) counts work, not seconds. TAP on standard output
set -u
limit=${top_srcdir:-.}/tests/limit
n=0 failed=0
claim() { local text=$1; shift; n=$((n + 1)); "$@" && echo "ok $n - $text" || { echo "not ok $n - $text"; failed=1; }; }
[ -r /proc/self/schedstat ] || { echo "the kernel has no schedstat"; exit 77; }

cpu=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
spinning=()
for _ in 1 2 3; do taskset -c "$cpu" bash -c 'while :; do :; done' & spinning+=($!); done
"$limit" 1 sleep 1000 &
hang=$!
# 1 s of computing beside three others on one processor
taskset -c "$cpu" "$limit" 2 bash -c 'while read -r run _ </proc/$$/schedstat && [ $run -lt 1000000000 ]; do :; done'
claim "work that others disturb is not ended" [ $? = 0 ]
kill "${spinning[@]}"
wait $hang
claim "a hang ends with status 124" [ $? = 124 ]
"$limit" 9 sh -c 'exit 77'
claim "the exit status is that of the command" [ $? = 77 ]
"$limit" 9 sh -c 'kill -INT $$; sleep 9'
claim "the command does not ignore SIGINT" [ $? = 130 ]
echo "1..$n"
exit $failed
