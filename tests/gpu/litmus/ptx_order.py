"""ptx_order - all executions of a small program that the PTX memory model allows, and what is wrong with them

Rules: "Memory Consistency Model" of the PTX ISA, for one proxy and words that overlap completely (Lustig, Sahasrabuddhe and
Giroux, A Formal Analysis of the NVIDIA PTX Memory Consistency Model, 2019). Every choice of the stores that strong loads read
from, and of the order of strong stores to one word, is tried. Weak accesses order nothing, so they are checked behind each
choice: two of them that conflict have to be ordered by causality, which also decides what a load reads.
"""
from itertools import permutations, product

STRONG = ("relaxed", "acquire", "release", "acq_rel")


class Event:
	"""thread: (rank, block, number). kind: ld, st, atom, or arrive and leave of a barrier; at: the word; wait: see Access"""

	def __init__(self, thread, kind, at=None, order="weak", scope=None, value=None, wait=None):
		self.thread, self.kind, self.at, self.order, self.scope = thread, kind, at, order, scope
		self.value, self.wait, self.number = value, wait, None

	reads = property(lambda self: self.kind in ("ld", "atom"))
	writes = property(lambda self: self.kind in ("st", "atom"))
	strong = property(lambda self: self.order in STRONG)

	def reaches(self, other):
		"""Does the scope of this access include the thread of the other one?"""
		return {"sys": True, "gpu": self.thread[0] == other.thread[0], "cta": self.thread[:2] == other.thread[:2]}[self.scope]

	def __str__(self):
		what = "".join(f".{part}" for part in (self.order, self.scope) if part)
		return f"{self.thread[0]}{self.thread[1]}.{self.thread[2]}: {self.kind}{what} {self.at}"


def closure(edges, n):
	"""Successors of each event, as masks; None: there is a cycle"""
	after = list(edges)
	for k in range(n):
		bit, mask = 1 << k, after[k]
		for i in range(n):
			if after[i] & bit:
				after[i] |= mask
	return None if any(after[i] >> i & 1 for i in range(n)) else after


class Program:
	"""threads: {(rank, block, number): [Event]}; barriers: pairs (arrive, leave) that belong together, by instance"""

	def __init__(self, threads, barriers):
		self.threads = threads
		self.events = [event for events in threads.values() for event in events]
		for number, event in enumerate(self.events):
			event.number = number
		self.n = len(self.events)
		self.po = [0] * self.n
		self.control = [0] * self.n
		for events in threads.values():
			for i, event in enumerate(events):
				later = sum(1 << e.number for e in events[i + 1:])
				self.po[event.number] |= later
				if event.wait or event.kind == "leave":
					self.control[event.number] |= later
		for instance in barriers:
			for arrive, _ in instance:
				for _, leave in instance:
					self.po[arrive.number] |= 1 << leave.number
					self.control[arrive.number] |= 1 << leave.number
		self.base = closure(self.po, self.n)
		self.words = {}
		for event in self.events:
			if event.at:
				self.words.setdefault(event.at, []).append(event)

	def same_thread_before(self, a, b):
		return a.thread == b.thread and a.number < b.number

	def morally_strong(self, a, b):
		return a.thread == b.thread or (a.strong and b.strong and a.reaches(b) and b.reaches(a))

	# ---- choices ------------------------------------------------------------------------------------------------------

	def candidates(self, load):
		"""Stores that a strong load may read; None: the initial 0. A load that waits for `eq` may also miss its value."""
		values = {None: 0} | {e: e.value for e in self.words[load.at] if e.writes and e is not load}
		wait, target = load.wait or ("ge", -1)
		fits = {"eq": lambda v: v >= target, "ge": lambda v: v >= target, "ne": lambda v: v != target}[wait]
		return [e for e, v in values.items() if (e is None or not self.base[load.number] >> e.number & 1) and
		        (e and e.kind == "atom" or fits(v))]

	def choices(self, loads, reads):
		"""What strong loads read; no load reads a store before the one that an earlier load of its thread has read."""
		if len(reads) == len(loads):
			yield reads
			return
		load = loads[len(reads)]
		seen = next((reads[e] for e in reversed(reads) if e.at == load.at and e.thread == load.thread), None)
		for store in self.candidates(load):
			if not seen or store and not self.base[store.number] >> seen.number & 1:
				yield from self.choices(loads, reads | {load: store})

	def orders(self, word):
		"""Orders of the strong stores to a word that agree with the order of each thread and of barriers"""
		stores = [e for e in self.words[word] if e.writes]
		for order in permutations(stores):
			if all(not self.base[b.number] >> a.number & 1 for i, a in enumerate(order) for b in order[i + 1:]):
				yield order

	def executions(self):
		"""(reads, coherence, causality) of each execution that the axioms allow"""
		loads = [e for e in self.events if e.reads and e.strong]
		words = [word for word, events in self.words.items() if any(e.strong for e in events)]
		for reads in self.choices(loads, {}):
			for orders in product(*(self.orders(word) for word in words)):
				coherence = dict(zip(words, orders))
				if not self.atomic(reads, coherence):
					continue
				causality = self.causality(reads)
				if causality and self.coherent(reads, coherence, causality):
					yield reads, coherence, causality

	def atomic(self, reads, coherence):
		"""Sets the values of atomic additions. False: one does not read the store before its own, or waits for another value"""
		for order in coherence.values():
			value = 0
			for i, event in enumerate(order):
				if event.kind == "atom":
					if reads[event] is not (order[i - 1] if i else None):
						return False
					if event.wait and (value == event.wait[1]) != (event.wait[0] == "eq"):
						return False
					value += 1
					event.value = value
				else:
					value = event.value
		return True

	# ---- axioms -------------------------------------------------------------------------------------------------------

	def causality(self, reads):
		edges, thin = list(self.base), list(self.control)
		for load, store in reads.items():
			if store is None:
				continue
			thin[store.number] |= 1 << load.number
			for release in self.releases(reads, load, store):
				for acquire in self.acquires(load):
					if self.morally_strong(release, acquire):
						edges[release.number] |= 1 << acquire.number
		return closure(edges, self.n) if closure(thin, self.n) else None

	def releases(self, reads, load, store):
		"""Releases that `load` observes: of the store it reads, of earlier ones by the same thread to the word, and of those
		that a chain of atomics has read"""
		while store is not None and self.morally_strong(store, load):
			yield from (e for e in self.words[store.at] if e.writes and e.order in ("release", "acq_rel") and
			            (e is store or self.same_thread_before(e, store)))
			load, store = store, reads.get(store) if store.kind == "atom" else None

	def acquires(self, load):
		return (e for e in self.words[load.at] if e.reads and e.order in ("acquire", "acq_rel") and
		        (e is load or self.same_thread_before(load, e)))

	def coherent(self, reads, coherence, causality):
		"""Coherence, SC per location and causality"""
		for word, order in coherence.items():
			place = {event: i for i, event in enumerate(order)} | {None: -1}
			for i, a in enumerate(order):
				if any(causality[b.number] >> a.number & 1 for b in order[i + 1:]):
					return False
			loads = [e for e in self.words[word] if e in reads]
			for load in loads:
				source = reads[load]
				if source and causality[load.number] >> source.number & 1:
					return False
				if any(causality[e.number] >> load.number & 1 for e in order[place[source] + 1:] if e is not load):
					return False
				if any(self.same_thread_before(load, other) and place[reads[other]] < place[source] for other in loads):
					return False
		return True

	# ---- what is wrong ------------------------------------------------------------------------------------------------

	def faults(self):
		"""(faults of the first execution that has some, number of executions)"""
		count = 0
		for reads, _, causality in self.executions():
			count += 1
			faults = {f"value: {load} reads {store.value if store else 0} in place of {load.value}" for load, store in reads.items()
			          if load.kind == "ld" and load.value is not None and load.value != (store.value if store else 0)}
			for events in self.words.values():
				faults.update(self.weak_faults(events, causality))
			if faults:
				return faults, count
		return set() if count else {"hang: no execution ends"}, count

	def weak_faults(self, events, causality):
		ordered = lambda a, b: causality[a.number] >> b.number & 1
		for i, a in enumerate(events):
			for b in events[i + 1:]:
				if (a.writes or b.writes) and not (a.strong and b.strong and self.morally_strong(a, b)) and \
				   a.thread != b.thread and not ordered(a, b) and not ordered(b, a):
					yield f"race: {a} and {b}"
		for load in events:
			if load.kind != "ld" or load.strong or load.value is None:
				continue
			before = [e for e in events if e.writes and ordered(e, load)]
			last = [e for e in before if not any(ordered(e, other) for other in before)]
			if [e.value for e in last] != [load.value]:
				yield f"value: {load} reads {last[0].value if last else 0} in place of {load.value}"
