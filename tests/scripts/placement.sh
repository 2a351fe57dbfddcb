#!/bin/bash
# placement.sh - ranks that a launcher numbers in turn over hosts, and that no launcher starts; TAP on standard output
set -u
. "${top_srcdir:-.}/tests/training"
net=(--data synth --model mlp:24,20 --global-batch 250 --leaf 8 --canonical tree --shards 8 --steps 2)
export TUTTI_SECRET=placement

# ranks MESH HOST...: a rank on each host, which is a name here; rank 0's output in $out/log
ranks() {
	local mesh=$1 rank=0 host
	shift
	export TUTTI_NRANKS=$# TUTTI_ROOT=127.0.0.1:$(free_port 29840)
	for host; do
		TUTTI_RANK=$rank TUTTI_HOST_ID=$host limit 100 "$prog" "${net[@]}" --mesh "$mesh" >"$out/log.$rank" 2>&1 </dev/null &
		rank=$((rank + 1))
	done
	wait
	cp "$out/log.0" "$out/log"
	: >"$out/err"
}
says() { grep -qx "placement $1" "$out/log"; }

run 60 "${net[@]}" --strategy one
hash=$(field hash)
claim "one device trains" [ -n "$hash" ]
ranks tensor=2,pipeline=2 a b a b
claim "tensor groups of ranks 0 2 and 1 3 are each within a host" \
	says "2 of 2 tensor groups and 0 of 2 pairs of stages are within one of 2 hosts; ranks are numbered by host"
claim "... with the hash of one device, printed by rank 0" is hash "$hash"
ranks data=2,pipeline=2 a b a b
claim "the stages of a replica are within a host" \
	says "4 of 4 tensor groups and 2 of 2 pairs of stages are within one of 2 hosts; ranks are numbered by host"
ranks tensor=2 a b
claim "two hosts of one rank have no choice" says "0 of 1 tensor groups and 0 of 0 pairs of stages are within one of 2 hosts"
run 60 "${net[@]}" --np 4 --mesh tensor=2,pipeline=2
claim "one host: nothing to say" eval 'is hash "$hash" && ! grep -q "^placement" "$out/log"'
# ---- ranks by roles --------------------------------------------------------------------------------------------------

unset TUTTI_NRANKS TUTTI_ROOT
net=(--data synth --model mlp:24 --global-batch 250 --leaf 8 --canonical tree --steps 2)
run 60 "${net[@]}" --strategy one
hash=$(field hash)
cluster="worker=127.0.0.1:$(free_port 29860),127.0.0.1;ps=127.0.0.1,127.0.0.1"
for task in ps:1 worker:1 ps:0; do
	limit 100 "$prog" "${net[@]}" --strategy ps-sync --cluster "$cluster" --task $task >"$out/log.$task" 2>&1 </dev/null &
done
run 100 "${net[@]}" --strategy ps-sync --cluster "$cluster" --task worker:0
wait
claim "two workers and two servers by --cluster: the hash of one device" is hash "$hash"
claim "... as ranks of these roles" eval 'is np 2 && is ps 2'
for task in worker:2 ps:x chief:0; do wrong 'not roles and a rank of them' --strategy ps-sync --cluster "$cluster" --task $task; done
for cluster in 'worker=' 'ps=a' 'worker=a,' 'worker=a;worker=b' 'boss=a'; do wrong 'not roles' --cluster "$cluster" --task worker:0; done
wrong 'has no parameter servers; omit ps=HOST' --cluster 'worker=a;ps=b' --task ps:0
wrong 'has parameter servers; add ps=HOST' --strategy ps-sync --cluster 'worker=a' --task worker:0
wrong 'by --np already' --np 2 --cluster 'worker=a' --task worker:0

echo "1..$n"
exit $failed
