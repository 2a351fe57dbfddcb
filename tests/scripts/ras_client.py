#!/usr/bin/env python3
"""Ask a RAS service as its clients do, and check its answer as their parsers do.

usage: ras_client.py HOST:PORT status [FACT...]    handshake, time-out, format and STATUS, each answer awaited (ncclras)
       ras_client.py HOST:PORT pipelined [FACT...] SET FORMAT json and STATUS at once, at most 1 s of silence (monitors)
       ras_client.py HOST:PORT text [WORDS]        the report as text; WORDS: the command instead of STATUS
       ras_client.py HOST:PORT wrong               commands that are errors, and a line that is too long
       ras_client.py HOST:PORT flood               200 silent connections and 50 with garbage beside one client
       ras_client.py HOST:PORT idle                a connection without a command is ended
FACT: unresponsive=RANK, ranks=N, counted=COLLECTIVE. A client repeats its question, with a new connection, until the
report has all facts, a minute at most, since a stopped process may take the connection (as with NCCL).
"""
import json
import socket
import sys
import time

PATIENCE = 60


def connect(address, seconds=5.0):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=seconds)


def rest(sock):
    data = b""
    while True:
        part = sock.recv(4096)
        if not part:
            return data
        data += part


def exchange(sock, line, want):
    sock.sendall(line)
    answer = b""
    while not answer.endswith(b"\n"):
        part = sock.recv(1024)
        if not part:
            break
        answer += part
    if answer != want:
        raise ValueError(f"{line!r} is answered by {answer[:200]!r}, not {want!r}")


def integer(value, least):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{value!r} is no integer of at least {least}")
    return value


def check_rank(rank, size, status_keys):
    integer(rank["rank"], 0)
    if rank["rank"] >= size or not isinstance(rank["host"], str) or not rank["host"]:
        raise ValueError(f"rank {rank}")
    integer(rank["pid"], 1)
    integer(rank["cuda_dev"], -1)
    integer(rank["nvml_dev"], -1)
    if set(rank["status"]) != set(status_keys):
        raise ValueError(f"status of rank {rank}")


def check(report):
    """The shape of NCCL's report, and the sums that parsers check."""
    if not report["nccl_version"].startswith("2."):
        raise ValueError("nccl_version")
    for key in "cuda_runtime_version", "cuda_driver_version":
        integer(report[key], 0)
    age = time.time() - time.mktime(time.strptime(report["timestamp"], "%Y-%m-%d %H:%M:%S"))
    if not -2 <= age < 300:
        raise ValueError(f"timestamp is {age} s old")
    if report["communicators_count"] != len(report["communicators"]):
        raise ValueError("communicators_count")
    for comm in report["communicators"]:
        int(comm["hash"], 16)
        for half in comm["secondary_hash"].split(":"):
            int(half, 16)
        size = integer(comm["size"], 1)
        if comm["ranks_count"] != len(comm["ranks"]) or comm["missing_ranks_count"] != len(comm["missing_ranks"]):
            raise ValueError("counts of ranks")
        if size != comm["ranks_count"] + comm["missing_ranks_count"]:
            raise ValueError("size")
        if sorted(r["rank"] for r in comm["ranks"] + comm["missing_ranks"]) != list(range(size)):
            raise ValueError("numbers of ranks")
        for rank in comm["ranks"]:
            check_rank(rank, size, ("init_state", "async_error", "finalize_called", "destroy_flag", "abort_flag"))
            for name in "AllReduce", "AllGather", "Broadcast", "Reduce", "ReduceScatter":
                integer(rank["collective_counts"][name], 0)
        for rank in comm["missing_ranks"]:
            check_rank(rank, size, ("unresponsive", "considered_dead"))
    integer(report["ras"]["timeouts_count"], 0)
    float(report["ras"]["collection_time_sec"])


def ask(address):
    with connect(address, 1.0) as sock:
        exchange(sock, b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL 2\n")
        sock.settimeout(10)
        exchange(sock, b"timeout 2\n", b"OK\n")
        exchange(sock, b"Set Format JSON\r\n", b"OK\n")
        sock.sendall(b"STATUS\n")
        return json.loads(rest(sock))


def ask_pipelined(address):
    with connect(address, 1.0) as sock:
        sock.sendall(b"SET FORMAT json\n")
        sock.sendall(b"STATUS\n")
        data = rest(sock)
    return json.loads(data[data.find(b"{"):])


def has(report, fact):
    """Has a communicator of the job the fact? A benchmark has two: the ranks, and those that call."""
    key, value = fact.split("=")
    test = {
        "ranks": lambda c: c["ranks_count"] == int(value),
        "counted": lambda c: c["ranks"] and all(r["collective_counts"][value] > 0 for r in c["ranks"]),
        "unresponsive": lambda c: any(r["rank"] == int(value) and r["status"]["unresponsive"] for r in c["missing_ranks"]),
    }
    return any(test[key](comm) for comm in report["communicators"])


def until(address, facts, question):
    began, why = time.monotonic(), "not asked"
    while time.monotonic() - began < PATIENCE:
        try:
            report = question(address)
            check(report)
            if all(has(report, fact) for fact in facts):
                print(f"after {time.monotonic() - began:.2f} s:", json.dumps(report))
                return
            why = json.dumps(report)
        except OSError as error:
            why = str(error)
        time.sleep(0.05)
    sys.exit(f"no report with {facts} within {PATIENCE} s; the latest: {why}")


def text(address, words=("STATUS",)):
    with connect(address) as sock:
        sock.sendall(" ".join(words).encode() + b"\n")
        sock.shutdown(socket.SHUT_WR)  # as `echo status | nc` does
        sys.stdout.write(rest(sock).decode())


def wrong(address):
    with connect(address) as sock:
        exchange(sock, b"client protocol 1\n", b"SERVER PROTOCOL 2\n")
        exchange(sock, b"hello\n", b"ERROR: Unknown command hello\n")
        exchange(sock, b"MONITOR\n", b"ERROR: Unknown command MONITOR\n")
        exchange(sock, b"\n", b"ERROR: Unknown command \n")
        exchange(sock, b"SET FORMAT xml\n", b"ERROR: Invalid format xml\n")
        exchange(sock, b"TIMEOUT -1\n", b"ERROR: Invalid timeout value -1\n")
        exchange(sock, b"TIMEOUT 1x\n", b"ERROR: Invalid timeout value 1x\n")
        exchange(sock, b"TIMEOUT 99999999999999999999\n", b"OK\n")
    with connect(address) as sock:
        sock.sendall(b"x" * 1024)
        if ended(sock) != b"":
            sys.exit("a line without an end is answered")


def ended(sock):
    try:
        return rest(sock)
    except ConnectionResetError:
        return b""


def flood(address, facts):
    silent = [connect(address, 30) for _ in range(200)]
    for _ in range(50):
        with connect(address, 30) as sock:
            sock.sendall(b"\x00\xff" * 2000)
    until(address, facts, ask)
    for sock in silent:
        sock.close()


def idle(address):
    with connect(address, PATIENCE) as sock:
        if ended(sock) != b"":
            sys.exit("a silent client is answered")


def main(address, how, *words):
    if how in ("status", "pipelined"):
        until(address, words, ask if how == "status" else ask_pipelined)
    elif how == "flood":
        flood(address, words)
    elif how == "text":
        text(address, words or ("STATUS",))
    else:
        {"wrong": wrong, "idle": idle}[how](address)


main(*sys.argv[1:])
