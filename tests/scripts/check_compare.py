"""check_compare.py PEERS - the parts of perf/compare that decide whether a comparison is fair; called by check_compare.sh

PEERS is the folder perf/peers. Prints TAP.
"""
import os
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])

import report  # noqa: E402
from neighbors import Neighbors  # noqa: E402
from world import Gone, World  # noqa: E402

RANKS = 3
# a rank: notes its number and its session; rank 0 is ready; all end with the pipe of turns
RANK = """
echo "$PEER_RANK $TUTTI_RANK $(cut -d" " -f6 /proc/$$/stat)" >>$PEER_FOLDER/ranks
[ $PEER_RANK != $FAILS ] || { echo "rank $PEER_RANK fails"; exit 3; }
[ $PEER_RANK != 0 ] || { exec 3>$PEER_RESULTS; [ $FAILS != no ] || echo ready >&3; read -r line <$PEER_TURNS; }
exec sleep 60
"""


class Ranks:
    label = "ranks"

    def __init__(self, fails):
        self.fails = fails

    def command(self, np, transport, crowded):
        return ["bash", "-c", RANK], {"FAILS": self.fails}, np


def ranks_share_a_session():
    world = World(Ranks("no"), RANKS, "shm", False, 4)
    try:
        path, lines = os.path.join(world.folder, "ranks"), []
        while len(lines) < RANKS:
            time.sleep(0.01)
            with open(path) as f:
                lines = [line.split() for line in f if line.endswith("\n")]
        sessions = {line[2] for line in lines}
        numbers = sorted(line[:2] for line in lines)
    finally:
        world.kill()
    wanted = [[str(r), str(r)] for r in range(RANKS)]
    if numbers != wanted:
        return f"ranks {numbers}"
    return "" if sessions == {str(world.process.pid)} else f"sessions {sessions} of ranks started by {world.process.pid}"


def a_failed_rank_ends_its_world():
    try:
        World(Ranks("2"), RANKS, "shm", False, 4).kill()
    except Gone as gone:
        return "" if "rank 2 fails" in str(gone) else f"the reason is: {gone}"
    return "the ranks are ready"


def neighbors_end():
    with Neighbors(2) as neighbors:
        sessions = {os.getsid(p.pid) for p in neighbors.processes}
        if sessions != {p.pid for p in neighbors.processes}:
            return f"sessions {sessions}"
    alive = [p.pid for p in neighbors.processes if p.poll() is None]
    return f"{alive} still compute" if alive else ""


def sample(contender, number, busy, mean, median):
    return {"np": 2, "transport": "shm", "collective": "allreduce", "place": "out", "buffers": "same",
            "offset": 0, "placement": report.ANYWHERE, "busy": busy, "bytes": 4, "round": number, "contender": contender,
            "calls": 1, "mean_us": mean, "median_us": median}


def means_count_beside_neighbors():
    """Tutti has the smaller median, and the larger mean."""
    samples = [sample(*s) for busy in (0, 1) for number in (1, 2)
               for s in (("tutti", number, busy, 30, 1), ("openmpi", number, busy, 10, 2))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "csv")
        report.write_csv(path, [], samples)
        quiet, busy = report.tables_of(report.read_csv(path)[1])
    if (quiet.behind(), busy.behind()) != ("nowhere", "openmpi: 4 (3.00)"):
        return f"behind: {quiet.behind()}; {busy.behind()}"
    return "" if busy.title() == quiet.title() + ", busy 1" else busy.title()


def peers_without_a_common_round_are_no_best_ones():
    """A placement may last for one turn, so a library has a time there, and Tutti none in that round."""
    samples = [sample("tutti", 1, 0, 3, 3), sample("openmpi", 2, 0, 1, 1), sample("mpich", 1, 0, 2, 2)]
    table, = report.tables_of(samples)
    none = list(report.tables_of(samples[:2]))
    return "" if table.behind() == "mpich: 4 (1.50)" and not none else f"{table.behind()}; {none}"


def a_limit_is_shown_and_is_no_peer():
    samples = [sample("tutti", 1, 0, 3, 3), sample("sockets", 1, 0, 1, 1), sample("mpich", 1, 0, 2, 2)]
    table, = report.tables_of(samples)
    row, = table.cells()
    alone = list(report.tables_of(samples[:2]))
    return "" if table.behind() == "mpich: 4 (1.50)" and row[1:4] == ["3.00", "2.00*", "1.00"] and not alone \
        else f"{table.behind()}; {row}; {alone}"


CLAIMS = (ranks_share_a_session, a_failed_rank_ends_its_world, neighbors_end, means_count_beside_neighbors,
          peers_without_a_common_round_are_no_best_ones, a_limit_is_shown_and_is_no_peer)
for number, claim in enumerate(CLAIMS, 1):
    wrong = claim()
    print(f"{'not ok' if wrong else 'ok'} {number} - {claim.__name__.replace('_', ' ')}" + (f"\n# {wrong}" if wrong else ""))
print(f"1..{len(CLAIMS)}")
