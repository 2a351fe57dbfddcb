#!/usr/bin/env python3
"""test_perfetto.py TRACE FOLDER - Perfetto finds in TRACE, of `tutti trace merge` or tutti-train --timeline, all that the file says

Perfetto's trace processor in FOLDER reads the file, and PyPI's perfetto asks it in SQL. Called by perfetto.sh.
"""
import json
import os
import subprocess
import sys

from perfetto.trace_processor.api import TraceProcessor
from perfetto.trace_processor.rpc import TraceProcessorRpc

BRIDGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_processor.js")
SLICES = """select slice.id, pid, tid, slice.name, slice.ts - trace_start() as ts, slice.dur from slice
    join thread_track on track_id = thread_track.id join thread using (utid) join process using (upid)"""
RANKS = "select pid, tid, thread.name from thread join process using (upid) where thread.name is not null"
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Pipe:
    """The transport of perfetto's client: stdin and stdout of a process"""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, n):
        data = self.process.stdout.read(n)
        if len(data) < n:
            raise ConnectionError("the trace processor has ended")
        return data

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Engine(TraceProcessorRpc):
    """perfetto's client, and the two requests that load a trace, which it lacks"""

    def request(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=getattr(self.protos.TraceProcessorRpc, method), **fields)
        self.transport.send(stream.SerializeToString())
        reply = self.protos.TraceProcessorRpc()
        reply.MergeFromString(self._read_payload())
        self._check_envelope(reply)
        return reply

    def parse(self, chunk):
        return self.request("TPM_APPEND_TRACE_DATA", append_trace_data=chunk).append_result

    def notify_eof(self):
        error = self.request("TPM_FINALIZE_TRACE_DATA").finalize_data_result.error
        if error:
            raise RuntimeError(error)


class Processor(TraceProcessor):
    def _create_backend(self, remote, addr):
        return Engine(Pipe(["node", BRIDGE, remote]), self.protos)


def ns(us):
    return round(us * 1000)


def agree(what, written, read):
    """Are the lists equal, and not empty?"""
    written, read = sorted(written), sorted(read)
    if written == read and written:
        print(f"{what}: {len(read)}")
        return True
    lost, more = [x for x in written if x not in read], [x for x in read if x not in written]
    print(f"{what}: {len(written)} written, {len(read)} read; only written: {lost[:3]}; only read: {more[:3]}")
    return False


def compare(events, tp):
    def rows(sql):
        return [tuple(row.__dict__.values()) for row in tp.query(sql)]

    for name, value in rows(ERRORS):
        print(f"Perfetto: {value} {name}")
    slices = {row[0]: row[1:] for row in rows(SLICES)}
    first = min(ns(e["ts"]) for e in events if e["ph"] == "X")
    events = [dict(e, tid=e["tid"] or e["pid"]) if "tid" in e else e for e in events]     # 0 is the process's first thread
    begins = {e["id"]: (e["pid"], e["tid"]) for e in events if e["ph"] == "s"}
    return not rows(ERRORS) and agree(
        "ranks", {(e["pid"], e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}, rows(RANKS),
    ) & agree(
        "calls", [(e["pid"], e["tid"], e["name"], ns(e["ts"]) - first, ns(e["dur"])) for e in events if e["ph"] == "X"], slices.values(),
    ) & agree(
        "arrows", [begins[e["id"]] + (e["pid"], e["tid"]) for e in events if e["ph"] == "f"],
        [slices[a][:2] + slices[b][:2] for a, b in rows("select slice_out, slice_in from flow")],
    )


def main(trace, folder):
    with open(trace) as f:
        events = json.load(f)["traceEvents"]
    with Processor(remote=folder, trace=trace) as tp:
        return 0 if compare(events, tp) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
