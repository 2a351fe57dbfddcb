#!/bin/bash
# wire.sh - a listener and a meddler on the wire between two ranks, each in a network namespace of its own
#
# A capture of all frames between the two has none of the markers that the ranks plant (support/wire.h), also where
# OPENSSL_CONF wants weaker ciphers. Then all connections lead through a relay, which changes one bit of a connection,
# puts in forged frames, verdicts and alerts, sends bytes twice or not at all, or cuts a connection: each job gives right
# results or ends with an error text. TAP on standard output.
#
#   wire.sh [every]     every: each bit of the first 4 KiB, 10,000 later ones; about an hour
set -u
dir=$PWD/tests/support
. "${top_srcdir:-.}/perf/two_hosts.sh"
out=$(mktemp -d)
pids=()
undo() { kill "${pids[@]}" 2>/dev/null; rm -rf "$out"; }
trap undo EXIT
n=0 failed=0
claim() { n=$((n + 1)); if [ "$1" = 0 ]; then echo "ok $n - $2"; else failed=1; echo "not ok $n - $2"; tail -n 3 "$out"/*.txt | sed 's/^/# /'; fi; }
hosts() { two_hosts 10.79.0 || { echo "$lacks"; exit 77; }; pids+=($a $b); }

hosts; rank0=$a relay0=$b       # 10.79.0.1 is rank 0, 10.79.0.2 its peer
hosts; relay1=$a rank1=$b       # 10.79.0.2 is rank 1, 10.79.0.1 its peer

# ---- a listener ------------------------------------------------------------------------------------------------------
host_marker=marker-of-a-host data_marker=marker-of-data-- tag_marker=tagOfMessage

await() { local i; for i in {1..600}; do grep -q "$1" "$2" 2>/dev/null && return; sleep .05; done; return 1; }
has() { grep -qaF "$1" "$out/frames"; }
# captured VARIABLE=VALUE...: frames of a job of two ranks with these variables, in $out/frames; true: the job was right
captured() {
	local r host bad=0 ranks=() capture
	$with_script nsenter --net="/proc/$rank0/ns/net" "$dir/wire_capture" va "$out/frames" >"$out/capture.txt" 2>&1 & capture=$!
	await captures "$out/capture.txt"
	for r in 0 1; do
		host=$rank0; [ $r = 1 ] && host=$relay0
		inside "$host" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh $host_marker env TUTTI_RANK=$r TUTTI_NRANKS=2 \
			TUTTI_ROOT=10.79.0.1:29791 TUTTI_SECRET=0f1e2d3c4b5a69788796a5b4c3d2e1f0 "$@" \
			timeout 60 "$dir/wire_rank" >"$out/rank$r.txt" 2>&1 </dev/null & ranks+=($!)
	done
	for r in "${ranks[@]}"; do wait "$r" || bad=1; done
	[ -z "${in_clear-}" ] || inside "$relay0" bash -c "printf %s '$host_marker$data_marker$tag_marker' >/dev/udp/10.79.0.1/9"
	kill $capture
	wait $capture || bad=1
	return $bad
}
captured && ! has $data_marker && ! has $tag_marker && ! has $host_marker
claim $? "the wire has neither the data, nor the tag of a message, nor the name of a host"
captured TUTTI_ENCRYPT=off && has $data_marker && ! has $tag_marker && ! has $host_marker
claim $? "with TUTTI_ENCRYPT=off the wire has the data, but neither tag nor name"
in_clear=1 captured && has $data_marker && has $tag_marker && has $host_marker
claim $? "the capture finds all three where they are sent in clear"

# A configuration of OpenSSL with weaker ciphers, without the algorithms that Tutti needs
cat >"$out/openssl.cnf" <<-'END'
	openssl_conf = all
	[all]
	ssl_conf = ssl
	providers = providers
	alg_section = algorithms
	[ssl]
	system_default = system
	[system]
	MinProtocol = TLSv1
	MaxProtocol = TLSv1.2
	CipherString = ALL:eNULL:@SECLEVEL=0
	Ciphersuites = TLS_AES_128_CCM_8_SHA256
	Groups = P-256
	Options = -AntiReplay
	[providers]
	legacy = on
	[on]
	activate = 1
	[algorithms]
	default_properties = provider=legacy
END
# What a client offers: TLS_AES_128_GCM_SHA256 alone, beside the mark of RFC 5746, and no compression
hello() { LC_ALL=C grep -qaP '\x00\x04\x13\x01\x00\xff\x01\x00' "$out/frames"; }
hello
claim $? "a client offers one cipher suite"
captured OPENSSL_CONF="$out/openssl.cnf" && hello && ! has $data_marker && ! has $tag_marker && ! has $host_marker
claim $? "a configuration of OpenSSL with weaker ciphers changes nothing"

# ---- a meddler -------------------------------------------------------------------------------------------------------
# meddled FIRST LAST BYTES KIND: jobs through the relay, which does KIND to one connection of each (support/wire_rank.c)
meddled() {
	local r host bad=0 ranks=() relay
	rm -f "$out/state" "$out"/*.txt
	$with_script nsenter --net="/proc/$relay0/ns/net" "$dir/wire_relay" "$out/state" "$relay0" "$relay1" >"$out/relay.txt" 2>&1 & relay=$!
	await 'for rank 0' "$out/relay.txt" && await 'for rank 1' "$out/relay.txt" || bad=1
	for r in 0 1; do
		host=$rank0; [ $r = 1 ] && host=$rank1
		TUTTI_PORT_RANGE=29792-29792 $with_script nsenter --net="/proc/$host/ns/net" timeout "${TT_TEST_SECONDS:-120}" \
			$with_script "$dir/wire_rank" $r "$out/state" "$@" >"$out/rank$r.txt" 2>&1 </dev/null &
		ranks+=($!)
	done
	for r in "${ranks[@]}"; do wait "$r" || bad=1; done
	kill $relay
	sed 's/^/# /' "$out"/rank?.txt
	return $bad
}
# Something was altered, and not every job is hopeless.
altered() { awk '/jobs/ { if ($5 < 1 || $7 < 1 || $7 >= $3) bad = 1; ranks++ } END { exit bad || ranks < 2 }' "$out"/rank?.txt; }

! TUTTI_ENCRYPT=off meddled 0 200 20000 later && grep -q 'wrong: a sum' "$out"/rank?.txt
claim $? "the relay reaches data: with TUTTI_ENCRYPT=off it makes a wrong sum"
# survives DESCRIPTION FIRST LAST BYTES KIND
survives() { meddled "${@:2}" && altered; claim $? "$1"; }
if [ "${1-}" = every ]; then
	survives "every bit of the first 4 KiB of the control connection, changed: right results or error texts" 0 32768 0 every
	survives "8,192 bits of the first 4 KiB of control and data connections" 0 8192 4096 some
	survives "10,000 bits after them" 0 10000 20000 later
	survives "4,000 forgeries" 0 4000 4000 forge
	survives "4,000 connections with bytes lost or repeated, or cut" 0 4000 20000 cut
else
	survives "changed bits of the first 4 KiB of a connection: right results or error texts" 0 250 4096 some
	survives "changed bits after them" 0 200 20000 later
	survives "forged frames, verdicts and alerts: no rank believes one" 0 150 4000 forge
	survives "bytes lost or repeated, or the connection cut: right results or error texts" 0 120 20000 cut
fi
echo "1..$n"
exit $failed
