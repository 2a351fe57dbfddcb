#!/usr/bin/env python3
"""litmus - run the litmus programs of the GPU kernels' protocols in all executions of the PTX memory model

	litmus.py [--kernels FOLDER] [PROGRAM...]

The accesses come from the text of the kernels (kernel_source.py), so a changed fence changes the program. Prints TAP.
"""
import argparse
import re
import sys
from pathlib import Path

from kernel_source import Source, SourceError
from ptx_order import Event, Program

HERE = Path(__file__).parent
SILENT = ("must_give_up", "report_failure", "check_signature", "put_signature", "fifo_start", "make_task", "make_combining_task",
          "alignment", "sweep", "elements", "fifo_move", "signals_of", "host_words_of", "unit")
PLAIN = {"flags": 16, "base": 0, "by_fifo": 1, "BLOCKS": 2, "last": 0}


class Litmus:
	def __init__(self, name, claim):
		self.name, self.claim, self.fields, self.lines = name, claim, set(), []


def read_programs(path):
	programs = []
	for line in path.read_text(encoding="utf-8").split("\n"):
		start = re.match(r"program ([\w-]+): (.*)", line)
		if start:
			programs.append(Litmus(*start.groups()))
		elif line.startswith("fields "):
			programs[-1].fields = set(line.split()[1:])
		elif line and not line.startswith("#"):
			thread, *steps = [part.strip() for part in line.split(" | ")]
			programs[-1].lines.append((re.match(r"(\w)(\d)\.(\d)", thread).groups(), steps))
	return programs


class Builder:
	"""Makes the events of one thread of a program."""

	def __init__(self, source, thread, ranks):
		self.source, self.thread, self.ranks, self.events = source, thread, ranks, []

	def add(self, *arguments, **named):
		self.events.append(Event(self.thread, *arguments, **named))

	def data(self, step):
		kind, at, value = step.split()
		slot = re.match(r"fifo\[(\d+)\](@\w)", at)
		if slot:
			block = self.thread[1] if self.source.has_own_slots() else 0
			at = f"fifo{block}.{self.source.slot(int(slot[1]))}{slot[2]}"
		self.add(kind, at, value=int(value))

	def word(self, place):
		field, index, owner = place
		rank = {"own": self.thread[0], "host": "H", "peer": next((r for r in self.ranks if r != self.thread[0]), "H")}[owner]
		return ".".join([field, *map(str, index)]) + "@" + rank

	def call(self, step):
		name, *rest = re.sub(r"\{.*", "", step).split()
		values = PLAIN | {"BLOCK": self.thread[1]} | {k: int(v) for k, v in (part.split("=") for part in rest)}
		marks = {m[1]: m[2] for m in re.finditer(r"\{(\w+): (.*?)\}", step)}
		silent = tuple(s for s in SILENT if s != name)
		alone = self.thread[2] == 0
		for a in self.source.accesses(name, values, alone, silent):
			if a.kind == "mark" and a.name in marks:
				self.data(marks[a.name])
			elif a.kind == "bar":
				self.barrier("bar")
			elif a.place and not self.repeats(a):
				self.add(a.kind, self.word(a.place), a.order, a.scope, a.value, a.wait)

	def repeats(self, a):
		"""Is this the weak access of another member of the same record? An acquire of a word that was polled takes its place."""
		last = self.events[-1] if self.events else None
		if not last or last.at != self.word(a.place) or last.kind != a.kind:
			return False
		if a.kind == "ld" and last.wait and last.order == "relaxed" and not a.wait:
			last.order, last.scope = a.order, a.scope
			return True
		return a.order == "weak" == last.order

	def barrier(self, kind):
		self.add("arrive", value=kind)
		self.add("leave", value=kind)

	def step(self, step):
		if step == "stream":
			self.barrier("stream")
		elif re.match(r"(st|ld) ", step):
			self.data(step)
		elif step.startswith("wait "):
			_, field, value = step.split()
			self.add("ld", self.word((field, (), "own")), "acquire", "sys", None, ("ge", int(value)))
		else:
			self.call(step)


def barriers(threads):
	"""Instances of barriers: those of a block, and those of all threads of a rank; a string: a thread does not reach one"""
	groups = {}
	for (rank, block, _), events in threads.items():
		for kind in ("bar", "stream"):
			group = (rank, block) if kind == "bar" else (rank,)
			groups.setdefault((kind, group), []).append([e for e in events if e.value == kind])
	for (_, group), members in groups.items():
		if len({len(member) for member in members}) > 1:
			return f"hang: not all threads of {''.join(map(str, group))} reach a barrier"
	return [[(member[i], member[i + 1]) for member in members] for members in groups.values() for i in range(0, len(members[0]), 2)]


def run(litmus, source, show):
	"""(faults, executions) of a program"""
	source.fields = litmus.fields
	ranks = sorted({thread[0] for thread, _ in litmus.lines})
	threads = {}
	for (rank, block, number), steps in litmus.lines:
		builder = Builder(source, (rank, int(block), int(number)), ranks)
		for step in steps:
			builder.step(step)
		threads[builder.thread] = builder.events
	for event in (event for events in threads.values() for event in events if show):
		print(f"# {event}{'' if event.value is None else f' {event.value}'}{' until {} {}'.format(*event.wait) if event.wait else ''}")
	instances = barriers(threads)
	if isinstance(instances, str):
		return {instances}, 0
	return Program(threads, instances).faults()


def main():
	options = argparse.ArgumentParser(description="Run litmus programs of the GPU kernels; exit with 1 if one has a fault.")
	options.add_argument("--kernels", metavar="FOLDER", default=HERE.parents[2] / "lib/gpu", help="has kernels.h and kernels/")
	options.add_argument("--show", action="store_true", help="print the events of each thread")
	options.add_argument("program", nargs="*")
	arguments = options.parse_args()
	failed = 0
	programs = [p for p in read_programs(HERE / "programs") if not arguments.program or p.name in arguments.program]
	for number, litmus in enumerate(programs, 1):
		try:
			faults, count = run(litmus, Source(arguments.kernels), arguments.show)
		except SourceError as error:
			faults, count = {f"source: {error}"}, 0
		print(f"{'not ok' if faults else 'ok'} {number} - {litmus.name}: {litmus.claim} ({count} executions)")
		for fault in sorted(faults)[:5]:
			print(f"# {fault}")
		failed |= bool(faults)
	print(f"1..{len(programs)}")
	sys.exit(failed)


if __name__ == "__main__":
	main()
