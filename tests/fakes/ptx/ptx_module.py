"""ptx_module - read PTX as nvcc writes it: kernels, their variables, registers and instructions

Used by ptx_to_c.py, which translates the kernels, and by ptx_rules.py, which checks them. nvcc writes one
statement a line. A statement that this reader does not know is an error with its line.
"""
import re

BYTES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "b32": 4, "u32": 4, "s32": 4,
         "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}

VARIABLE = re.compile(r"\.(shared|local|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?[;,]?$")
ENTRY = re.compile(r"\.visible\s+\.entry\s+([\w$]+)\(")
LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s")
INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)(?:\s+(.*?))?\s*;$")
IGNORED = re.compile(r"//|\.(version|target|address_size|pragma|maxntid|minnctapersm|file)\b|[(){}]|\)$")


class PtxError(Exception):
	"""A statement that cannot be read, translated or allowed; str() names kernel, PTX line and source line"""


class Instruction:
	"""An instruction: `parts` are the opcode and its modifiers, `guard` is its predicate as (negated, register)."""

	def __init__(self, line, source, guard, opcode, operands):
		self.line, self.source, self.guard = line, source, guard
		self.parts, self.operands = opcode.split("."), operands
		self.opcode, self.type = self.parts[0], self.parts[-1]


class Kernel:
	"""A kernel. code: a list of Instruction, and of str for labels; variables: name to (space, offset)."""

	def __init__(self, module, name, shared):
		self.module, self.name = module, name
		self.code, self.widths, self.variables = [], {}, {}
		self.size = {"shared": 0, "local": 0, "param": 0}
		for variable in shared:
			self.add_variable(*variable)

	def add_variable(self, space, align, bytes_each, name, count):
		size, at = bytes_each * count, self.size[space]
		at = (at + align - 1) // align * align
		self.variables[name] = (space, at)
		self.size[space] = at + size

	def where(self, line, source):
		file, number = source
		return f"{self.name}, {self.module.name}:{line} ({self.module.files.get(file, 'no source')}:{number})"

	def fail(self, instruction, text):
		raise PtxError(f"{self.where(instruction.line, instruction.source)}: {text}")


class Module:
	"""All kernels of a PTX file. name: for messages"""

	def __init__(self, path, name):
		self.name, self.kernels, self.files, self.shared = name, [], {}, []
		with open(path, encoding="ascii") as file:
			lines = [line.strip() for line in file]
		for line in lines:
			match = re.match(r'\.file\s+(\d+)\s+"(.*)"', line)
			if match:
				self.files[int(match[1])] = match[2].split("/")[-1]
		self._read(lines)

	def _read(self, lines):
		kernel, source = None, (0, 0)
		for number, line in enumerate(lines, 1):
			if line.startswith(".section"):
				break
			entry, location = ENTRY.match(line), LOCATION.match(line)
			if entry:
				kernel, source = Kernel(self, entry[1], self.shared), (0, 0)
				self.kernels.append(kernel)
			elif location:
				# line 0: an instruction of no line in particular
				source = (int(location[1]), int(location[2])) if location[2] != "0" else source
			elif line and not IGNORED.match(line):
				self._statement(kernel, number, source, line)

	def _statement(self, kernel, number, source, line):
		variable, register = VARIABLE.match(line), re.match(r"\.reg\s+\.(\w+)\s+(%\w+?)(?:<\d+>)?;", line)
		label, instruction = re.match(r"([$\w]+):$", line), INSTRUCTION.match(line)
		if variable:
			space, align, kind, name, count = variable.groups()
			found = (space, int(align or BYTES[kind]), BYTES[kind], name, int(count or 1))
			kernel.add_variable(*found) if kernel else self.shared.append(found)
		elif not kernel:
			raise PtxError(f"{self.name}:{number}: unknown statement outside of kernels: {line}")
		elif register:
			kernel.widths[register[2]] = BYTES[register[1]] if register[1] != "pred" else 0
		elif label:
			kernel.code.append(label[1])
		elif instruction:
			negated, predicate, opcode, operands = instruction.groups()
			guard = (bool(negated), predicate) if predicate else None
			kernel.code.append(Instruction(number, source, guard, opcode, split_operands(operands or "")))
		else:
			raise PtxError(f"{kernel.where(number, source)}: unknown statement: {line}")


def split_operands(text):
	"""Splits at the commas outside of brackets."""
	return [part.strip() for part in re.findall(r"(?:[^,\[{]|\[[^]]*\]|\{[^}]*\})+", text)]
