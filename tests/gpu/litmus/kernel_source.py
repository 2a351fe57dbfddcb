"""kernel_source - the accesses of signal words that a function of lib/gpu/kernels makes, in order, read from its text

A word of kernel_nvcc.cuh (put_release, SYNC, ...) stands for the PTX instruction in its body. Source.accesses() expands the
calls of a function until only such words, weak accesses of signal words and reports, and marks remain. A mark is a call that
the litmus program replaces by accesses of its own.
"""
import re
from pathlib import Path

FUNCTION = re.compile(r"^DEV [\w *]*?\b(\w+)\(([^{;]*?)\)\n\{\n(.*?)^\}", re.M | re.S)
HEAD = re.compile(r"(else )?if \(|(ONCE )?for \(|while \(|else")
POINTER = re.compile(r"(?:^|[ ,])\*(\w+)\s*=\s*(.*)")


class SourceError(Exception):
	pass


class Access:
	"""kind: ld, st, atom, bar or mark; order: weak, relaxed, acquire, release or acq_rel. place: field, index and owner of a word.
	wait: None, or (relation, value): a load is repeated until its value is `eq` or `ge` the value"""

	def __init__(self, kind, order="weak", scope=None, place=None, value=None, wait=None, name=None):
		self.kind, self.order, self.scope, self.place = kind, order, scope, place
		self.value, self.wait, self.name = value, wait, name


def split_arguments(text):
	parts, depth = [""], 0
	for char in text:
		depth += (char in "([{") - (char in ")]}")
		if char == "," and not depth:
			parts.append("")
		else:
			parts[-1] += char
	return [part.strip() for part in parts]


def closing(text, at):
	"""Index of the parenthesis that closes the one at `at`"""
	depth = 0
	for i in range(at, len(text)):
		depth += (text[i] == "(") - (text[i] == ")")
		if not depth:
			return i
	raise SourceError(f"no closing parenthesis: {text}")


def statements(body):
	"""(depth, text) of each statement, and of each head of one, such as `for (...)`"""
	result, text, depth = [], "", 0
	body = re.sub(r"\n\s*->", "->", re.sub(r"/\*.*?\*/", "", body, flags=re.S))
	for line in body.split("\n"):
		if not line.strip():
			continue
		if not text:
			depth = len(line) - len(line.lstrip("\t"))
		text = f"{text} {line.strip()}".strip()
		if text.count("(") == text.count(")") and (text[-1] in ";{})" or text in ("UNROLL", "else")):
			result.append((depth, text))
			text = ""
	return result


class Source:
	"""The kernels as text: `folder` has kernels.h and kernels/"""

	def __init__(self, folder):
		texts = {file.name: file.read_text(encoding="utf-8") for file in (Path(folder) / "kernels").iterdir()}
		self.fields = set()
		contract = (Path(folder) / "kernels.h").read_text(encoding="utf-8")
		nvcc = texts.pop("kernel_nvcc.cuh")
		texts.pop("kernel_host.h")
		self.constants = dict(re.findall(r"^#define (TT_\w+) (\(?[\w *]+?\)?)(?: /\*.*)?$", contract, re.M))
		self.constants |= dict(re.findall(r"^\t(TT_\w+) = (\d+),?$", contract, re.M))
		self.words = {name: op.split(".") for name, op in
		              re.findall(r'^DEV \w+ (\w+)\([^{}]*\)\n\{[^}]*?asm volatile\(\s*"([\w.:]+) ', nvcc, re.M)
		              if name.startswith(("put_", "get_", "add_"))}
		self.words |= {"SYNC": ["bar"]} if "SYNC() __syncthreads()" in nvcc else {}
		self.functions = {}
		for text in texts.values():
			for name, parameters, body in FUNCTION.findall(re.sub(r"\bOF\((\w+)\)\(", r"\1(", text)):
				names = [re.split(r"[ *]", part)[-1] for part in split_arguments(parameters)]
				self.functions[name] = (names, statements(body))

	def value(self, text, names):
		"""The number of an expression of names and constants; None: other things are in it"""
		text = re.sub(r"\((?:u?int\d+_t|int)\)", "", text).replace("&&", " and ").replace("||", " or ")
		text = re.sub(r"(?:c|j|f)->", "", text)
		for _ in range(8):
			text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: m[0] if m[0] in ("and", "or") else
			              str(names.get(m[0], self.constants.get(m[0], m[0]))), text)
		if re.search(r"[A-Za-z_]", re.sub(r"\b(and|or)\b", "", text)) or "!" in text.replace("!=", ""):
			return None
		try:
			return int(eval(text.replace("/", "//"), {"__builtins__": {}}))
		except (SyntaxError, TypeError):
			return None

	def slot(self, round_number):
		"""Number of the slot of a round: the expression of slot_of"""
		text = " ".join(text for _, text in self.functions["slot_of"][1])
		return self.value(re.search(r"(round % .*?);", text)[1], {"round": round_number})

	def has_own_slots(self):
		"""Does each block have slots of its own?"""
		return any("BLOCK * TT_FIFO_SLOTS" in text for _, text in self.functions["slot_of"][1])

	def place(self, text, names):
		"""(field, index, owner) of an expression of a signal word, None: of other memory. owner: own, peer or host"""
		for name in re.findall(r"(?:->|\.)(\w+)", text):
			if name in self.fields:
				break
		else:
			return None
		owner = "own" if "_of(j, j->rank)" in text or "mine->" in text else "peer" if "signals_of" in text or "host_words_of" in text else "host"
		if owner == "host" and "host->" not in text:
			return None
		indices = re.findall(r"\[(.*?)\]", text[text.index(name):])
		index = [self.value(i, names) for i in (indices[:1] if len(indices) < 2 else [indices[0], indices[-1]])]
		return (name, tuple(i for i in index if i is not None), owner)

	def accesses(self, name, names, alone, marks=(), arguments=()):
		"""Accesses of function `name`. names: values of variables; alone: the thread that conditions on THREAD choose;
		arguments: of the call, as text"""
		if name not in self.functions:
			raise SourceError(f"lib/gpu/kernels has no function {name}")
		parameters, body = self.functions[name]
		texts = {p: a for p, a in zip(parameters, arguments) if p not in ("j", "c") and self.value(a, names) is None}
		names = names | {p: self.value(a, names) for p, a in zip(parameters, arguments) if self.value(a, names) is not None}
		heads, skipped, taken = [], None, {}
		for depth, text in body:
			heads = [head for head in heads if head[0] < depth]
			if skipped is not None and depth > skipped:
				continue
			skipped = None
			pointer = POINTER.search(text)
			for p, a in texts.items():
				if not pointer or p != pointer[1]:
					text = re.sub(rf"(?<![\w>.]){p}\b", lambda _: a, text)
			if HEAD.match(text):
				if not self.enters(text, names, taken.get(depth)):
					skipped = depth
					taken[depth] = taken.get(depth) if text.startswith("else") else False
					continue
				taken[depth] = True
				heads.append((depth, text))
			if not alone and any("THREAD" in head for _, head in heads):
				continue
			if pointer and not HEAD.match(text) and ("->" in pointer[2]):
				texts[pointer[1]] = "host->" if "report" in pointer[2] else POINTER.search(text)[2].strip(";")
				continue
			for local, expression in () if HEAD.match(text) else re.findall(r"(?:uint\d+_t |, )(\w+) = ([^,;]*)", text):
				if self.value(expression, names) is not None:
					names[local] = self.value(expression, names)
			yield from self.statement(text, names, alone, marks)

	def enters(self, head, names, before):
		"""Is the block of a head executed, as far as the names tell? before: of the `if` in front of an `else`"""
		if head.startswith("else") and before:
			return False
		condition = re.search(r"if \((.*)\)|for \(.*?;(.*);", head)
		if not condition:
			return True
		parts = [condition[1]] if condition[1] else condition[2].split("&&")
		return all(self.value(part.strip(), names) != 0 for part in parts)

	def statement(self, text, names, alone, marks):
		"""Accesses of one statement: calls, then weak accesses. The pointers in text are replaced by what they point to."""
		called = False
		for m in re.finditer(r"\b(\w+)\(", text):
			arguments = split_arguments(text[m.end():closing(text, m.end() - 1)])
			if m[1] in marks:
				yield Access("mark", name=m[1])
			elif m[1] in self.words:
				access = self.word(m[1], arguments, text[closing(text, m.end() - 1):], names)
				if m[1] != "get_relaxed" or access.wait or HEAD.match(text): # a wait follows a first poll whose flag does not fit
					yield access
			elif m[1] in self.functions:
				yield from self.accesses(m[1], names, alone, marks, arguments)
			else:
				continue
			called = called or m[1] not in ("signals_of", "host_words_of")
		if not called:
			yield from self.weak(text, names)

	def word(self, word, arguments, rest, names):
		parts = self.words[word]
		if parts[0] == "bar":
			return Access("bar")
		order = next((p for p in parts if p in ("relaxed", "acquire", "release", "acq_rel")), "weak")
		scope = next((p for p in parts if p in ("cta", "gpu", "sys")), None)
		place = self.place(arguments[0], names)
		wait = None
		if re.match(r"\)+ >> 32 != epoch", rest):
			wait = ("eq", names["epoch"])
		reached = re.match(r"\) - (.*?)\) < (-?\d+)\)", rest)
		if parts[0] == "atom" and rest.startswith(") == BLOCKS - 1"):
			wait = ("eq" if names.get("last") else "ne", names["BLOCKS"] - 1)
		if reached:
			wait = ("ge", (self.value(reached[1], names) or 0) + int(reached[2]))
		value = self.value(arguments[1], names) if len(arguments) > 1 else None
		if value is None and len(arguments) > 1:
			value = names.get("epoch", 1) if "epoch" in arguments[1] or "flag" in arguments[1] else 1
		if word == "get_relaxed": # payload and epoch in one word
			value = names.get("epoch")
		return Access(parts[0], order, scope, place, value, wait)

	def weak(self, text, names):
		stored, _, loaded = text.partition(" = ") if " = " in text else ("", "", text)
		for kind, part in (("ld", loaded), ("st", stored)):
			place = self.place(part, names)
			if place:
				value = self.value(loaded.strip("; "), names) if kind == "st" else None
				yield Access(kind, place=place, value=names.get("epoch", 1) if value is None else value)
