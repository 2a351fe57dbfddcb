#!/bin/sh
# check_walls.sh - includes run down only, by the table of walls in HACKING.md; protocols call no system; no file name and no tag
# is used twice; the functions that tests/fuzz/parsers lists exist
# Called by make check. The same checks must refuse a small tree with one violation of each kind.

# table FILE: the lines "ROOM: ROOM..." of the table; a room is a folder, lib/ left out, and files of lib itself are tutti.h's
table() { sed -n '/^<!-- walls -->/,/^<!-- end of walls -->/s/^    \([a-z/]*\): *\(.*\)$/\1: \2/p' "$1"; }

# sources DIR: the C files and headers of DIR
sources() { (cd "$1" && find lib algorithms transports nccl mpi tools perf trainer tests examples -name '*.[ch]' -o -name '*.cu' 2>/dev/null | sort); }

# walls TABLE DIR: a line for each include that the table does not allow, each room missing in the table, and each room that the
# table allows to include a room below
walls() {
	sources "$2" | (cd "$2" && xargs grep -HoE '^ *# *include "[^"]+"') | sed 's/: *# *include "/ /; s/"$//' | awk -v table="$1" '
		function room(path) { sub(/^lib\//, "", path); if (!sub(/\/[^\/]*$/, "", path)) return path == "tutti.h" ? "" : path; return path }
		function known(r) { while (r != "" && !(r in rank)) if (!sub(/\/[^\/]*$/, "", r)) r = ""; return r }
		BEGIN {
			while ((getline line <table) > 0) {
				n = split(line, w, /[: ]+/); rank[w[1]] = ++rooms
				for (i = 2; i <= n; i++) if (w[i] == "*") all[w[1]] = 1; else if (w[i] != "") {
					may[w[1], w[i]] = 1
					if (!(w[i] in rank)) print "the table lets " w[1] " include " w[i] ", which stands below it"
				}
			}
			if (!rooms) print "there is no table of walls"
		}
		$2 ~ /config\.h$/ && $2 !~ /\// || $2 == "tutti.h" || $2 == "lib/tutti.h" { next }
		{
			from = known(room($1)); to = known(room($2))
			if (from == "") print $1 ": its folder is not in the table"
			else if (to == "" && $2 ~ /\//) print $1 ": the folder of " $2 " is not in the table"
			else if (to != "" && from != to && !all[from] && !((from, to) in may)) print $1 ": " from " may not include " $2
		}'
}

# protocols FILE: the names "ROOM/NAME" of the list of protocols in HACKING.md
protocols() {
	sed -n '/^<!-- protocols -->/,/^<!-- end of protocols -->/s/^    \([a-z]*\): *\(.*\)$/\1 \2/p' "$1" |
		awk '{ for (i = 2; i <= NF; i++) print $1 "/" $i }'
}

# calls LIST DIR: each call of a protocol in LIST that uses a descriptor, starts a thread, sleeps or asks for the time; each protocol
# without a file
calls() {
	[ -s "$1" ] || echo "there is no list of protocols"
	(cd "$2/lib" && while read -r name; do
		[ -e "$name.c" ] || echo "there is no lib/$name.c"
		grep -nE '(^|[^a-zA-Z0-9_.>])('"$system"') *\(' "$name.c" | sed -E "s,^([0-9]+):[[:space:]]*,lib/$name.c:\1: ,"
	done) <"$1" 2>/dev/null
}
system='socket|socketpair|connect|accept4?|listen|bind|send|recv|sendto|recvfrom|sendmsg|recvmsg|read|write|readv|writev|open|close|ioctl'
system="$system|poll|ppoll|select|epoll_[a-z0-9_]+|eventfd|[gs]etsockopt|tt_sock_[a-hj-z][a-z_]*|nanosleep|usleep|sleep|clock_gettime"
system="$system|gettimeofday|time|fork|pthread_create|pthread_join|tt_thread_start"

# twice DIR: each file name and each tag of a struct, union or enum that has two definitions
twice() {
	sources "$1" | sed 's,.*/,,' | sort | uniq -d | sed 's/^/two files are called /'
	sources "$1" | (cd "$1" && xargs grep -hoE '(^|[^a-zA-Z_])(struct|union|enum) [a-zA-Z_0-9]+( __attribute__[^{]*)? \{') |
		sed -E 's/.*(struct|union|enum) ([a-zA-Z_0-9]+).*/\2/' | sort | uniq -d | sed 's/^/two definitions have the tag /'
}

# parsers DIR: each function of DIR/tests/fuzz/parsers that its file does not define
parsers() {
	(cd "$1" && grep -v '^#' tests/fuzz/parsers | while IFS=: read -r file functions; do
		for name in $functions; do
			grep -qE "(^|[ *])$name\(" "$file" || echo "$file has no function $name"
		done
	done)
}

n=0
point() { n=$((n + 1)); if [ -z "$2" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; printf '%s\n' "$2" | head -n 40 | sed 's/^/# /'; fi; }
finds() { case "$2" in *"$3"*) point "$1" "" ;; *) point "$1" "found: $2" ;; esac; }

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
table "$top_srcdir/HACKING.md" >"$tmp/table"
point "every include follows the table of walls" "$(walls "$tmp/table" "$top_srcdir")"
protocols "$top_srcdir/HACKING.md" >"$tmp/protocols"
point "a protocol uses no descriptor, starts no thread, and neither sleeps nor asks for the time" "$(calls "$tmp/protocols" "$top_srcdir")"
point "no file name and no tag is used twice" "$(twice "$top_srcdir")"
point "every function of tests/fuzz/parsers exists" "$(parsers "$top_srcdir")"

mkdir -p "$tmp/bad/lib/base" "$tmp/bad/lib/run" "$tmp/bad/lib/new" "$tmp/bad/tests"
printf '#include "run/a.h"\nstruct x { int a; };\n' >"$tmp/bad/lib/base/a.h"
printf '#include "base/a.h"\nenum x { A };\n' >"$tmp/bad/lib/run/a.h"
printf '#include "base/a.h"\n' >"$tmp/bad/lib/new/b.c"
mkdir -p "$tmp/bad/tests/fuzz"
printf 'lib/base/a.h: x read_x\n' >"$tmp/bad/tests/fuzz/parsers"
printf 'base:\nrun: base\n' >"$tmp/good"
printf 'base: run\nrun: base\n' >"$tmp/circle"
said=$(walls "$tmp/good" "$tmp/bad")
finds "an include against the table is found" "$said" "lib/base/a.h: base may not include run/a.h"
finds "a folder that is not in the table is found" "$said" "lib/new/b.c: its folder is not in the table"
finds "a cycle in the table is found" "$(walls "$tmp/circle" "$tmp/bad")" "the table lets base include run, which stands below it"
printf 'void x(void)\n{\n\tnanosleep(0, 0);\n}\n' >"$tmp/bad/lib/run/c.c"
printf 'run/c\nrun/d\n' >"$tmp/called"
said=$(calls "$tmp/called" "$tmp/bad")
finds "a protocol that sleeps is found" "$said" "lib/run/c.c:3: nanosleep(0, 0);"
finds "a protocol without a file is found" "$said" "there is no lib/run/d.c"
: >"$tmp/called"
finds "an empty list of protocols is found" "$(calls "$tmp/called" "$tmp/bad")" "there is no list of protocols"
said=$(twice "$tmp/bad")
finds "a file name that is used twice is found" "$said" "two files are called a.h"
finds "a tag that is used twice is found" "$said" "two definitions have the tag x"
finds "a function that its file does not define is found" "$(parsers "$tmp/bad")" "lib/base/a.h has no function read_x"
echo 1..$n
