#!/usr/bin/env python3
"""ptx_to_c - translate the PTX that nvcc wrote to C, which ptx_run.c executes on the host

Called by make_driver. A kernel becomes a C function, which runs one thread of one block; a register becomes a
variable of its width, and an instruction becomes a statement, with the number of its PTX line by #line. Each
form of an instruction is translated exactly, or is an error that names kernel, PTX line and source line.
"""
import argparse
import re
import sys

from ptx_module import BYTES, Instruction, Module, PtxError

SPECIAL = {"%tid.x": "g->tid", "%ntid.x": "g->block->threads", "%ctaid.x": "g->block->number",
           "%nctaid.x": "g->block->blocks", "%globaltimer": "ptx_globaltimer()"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ORDERS = ("weak", "relaxed", "volatile", "acquire", "release")
SCOPES = ("gpu", "sys")
BITWISE = {"and": "&", "or": "|", "xor": "^"}


def word(width):
	return "uint8_t" if not width else f"uint{8 * width}_t"


def signed(width):
	return f"int{8 * width}_t"


class Translator:
	"""Translates one kernel; the statements are in self.out."""

	def __init__(self, kernel):
		self.kernel, self.out, self.used = kernel, [], set()

	# ---- operands --------------------------------------------------------------------------------------------

	def width_of(self, register):
		return self.kernel.widths[register if register in self.kernel.widths else register.rstrip("0123456789")]

	def name(self, register):
		self.width_of(register)
		self.used.add(register)
		return register[1:]

	def bits(self, operand, kind):
		"""The operand as an unsigned C expression of the width of `kind`"""
		width = BYTES[kind]
		if kind == "pred":
			return self.name(operand)
		if operand in SPECIAL:
			return f"(({word(width)}){SPECIAL[operand]})"
		if operand.startswith("%"):
			name = self.name(operand)
			return name if self.width_of(operand) == width else f"(({word(width)}){name})"
		if re.fullmatch(r"0[fFdD][0-9A-Fa-f]+", operand):
			return f"0x{operand[2:]}{'u' if operand[1] in 'fF' else 'ull'}"
		if re.fullmatch(r"-?(0[xX][0-9A-Fa-f]+|\d+)", operand):
			return f"(({word(width)}){operand}{'ull' if width == 8 else 'u'})"
		if operand in self.kernel.variables:
			return f"(({word(width)}){self.kernel.variables[operand][1]}u)"
		raise KeyError(operand)

	def value(self, operand, kind):
		"""The operand as a C expression of the type `kind`"""
		bits = self.bits(operand, kind)
		if kind[0] == "f":
			return f"ptx_float({bits})" if kind == "f32" else f"ptx_double({bits})"
		return f"(({signed(BYTES[kind])}){bits})" if kind[0] == "s" else bits

	def assign(self, register, expression, kind):
		"""A signed value in a wider register is extended by its sign, any other by zeros."""
		width = self.width_of(register)
		if kind[0] == "s" and width > BYTES[kind]:
			expression = f"({signed(BYTES[kind])})({expression})"
		elif kind != "pred" and width > BYTES[kind]:
			expression = f"({word(BYTES[kind])})({expression})"
		return f"{self.name(register)} = ({word(width)})({expression});"

	def assign_float(self, register, expression, kind):
		return self.assign(register, f"ptx_bits_{kind}({expression})", "b" + kind[1:])

	def address(self, operand, space, size):
		"""The host's address of size bytes at [register+offset] or [variable+offset], checked"""
		base, offset = re.fullmatch(r"\[([%$\w]+)(?:\+(-?\d+))?\]", operand).groups()
		if not base.startswith("%"):
			space = self.kernel.variables[base][0]
		at = f"{self.bits(base, 'b64')} + (uint64_t)({offset or 0}ll)"
		return f"ptx_{space}(g, {at}, {size}, __LINE__)"

	# ---- instructions ----------------------------------------------------------------------------------------

	def run(self):
		for item in self.kernel.code:
			if isinstance(item, Instruction):
				self.out.append(f"#line {item.line}")
				self.out.append(self.instruction(item))
			else:
				self.out.append(f"L{item.strip('$')}:;")

	def instruction(self, i):
		method = getattr(self, f"op_{i.opcode}", None)
		if not method:
			self.kernel.fail(i, f"instruction {'.'.join(i.parts)} is not translated")
		try:
			statement = method(i, i.parts[1:-1], i.type, *i.operands)
		except (KeyError, TypeError, ValueError, AttributeError, AssertionError):
			self.kernel.fail(i, f"form {'.'.join(i.parts)} {', '.join(i.operands)} is not translated")
		if i.guard:
			return f"if ({'!' if i.guard[0] else ''}{self.name(i.guard[1])}) {{ {statement} }}"
		return statement

	def op_ld(self, i, modifiers, kind, to, at):
		return self.move(i, modifiers, kind, to, at, "load")

	def op_st(self, i, modifiers, kind, at, value):
		return self.move(i, modifiers, kind, value, at, "store")

	def move(self, i, modifiers, kind, registers, at, verb):
		order, space, vector, scope = "weak", "generic", 1, None
		for m in modifiers:
			if m in ORDERS:
				order = m
			elif m in ("global", "shared", "local", "param"):
				space = m
			elif m in SCOPES:
				scope = m
			else:
				vector = {"v2": 2, "v4": 4}[m]
		registers = [r.strip() for r in registers.strip("{}").split(",")]
		width, bits = BYTES[kind], "b%d" % (8 * BYTES[kind])
		assert len(registers) == vector and (scope or order in ("weak", "volatile"))
		assert order == "weak" or space in ("global", "generic")
		parts = [f"unsigned char *at = {self.address(at, space, width * vector)};"]
		if space in ("global", "generic"):
			parts.append(f"ptx_count(g, at, {width * vector}, {int(verb == 'store')}, PTX_{order.upper()});")
		for n, register in enumerate(registers):
			place = f"at + {n * width}" if n else "at"
			if verb == "load":
				load = f"ptx_load{8 * width}(g, {place}, PTX_{order.upper()})"
				parts.append(self.assign(register, load, kind if kind[0] == "s" else bits))
			else:
				parts.append(f"ptx_store{8 * width}(g, {place}, {self.bits(register, bits)}, PTX_{order.upper()});")
		return f"{{ {' '.join(parts)} }}"

	def op_atom(self, i, modifiers, kind, to, at, value):
		verb = [m for m in modifiers if m in ("exch", "add")]
		order = "ACQ_REL" if "acq_rel" in modifiers else "RELAXED"
		assert len(verb) == 1 and BYTES[kind] == 4 and kind != "f32"
		assert set(modifiers) <= {verb[0], "acq_rel", "relaxed", "global", *SCOPES}
		place = self.address(at, "global" if "global" in modifiers else "generic", 4)
		return self.assign(to, f"ptx_{verb[0]}32({place}, {self.bits(value, kind)}, __ATOMIC_{order})", kind)

	def op_bar(self, i, modifiers, kind, barrier):
		assert kind == "sync" and barrier == "0"
		return "ptx_count_barrier(g); ptx_barrier(g, __LINE__);"

	def op_bra(self, i, modifiers, kind, label):
		return f"goto L{label.strip('$')};"

	def op_ret(self, i, modifiers, kind):
		return "return;"

	def op_mov(self, i, modifiers, kind, to, source):
		if to.startswith("{") or source.startswith("{"):
			return self.move_parts(kind, to, source)
		kind = kind if kind == "pred" else "b%d" % (8 * BYTES[kind])
		return self.assign(to, self.bits(source, kind), kind)

	def move_parts(self, kind, to, source):
		"""mov between a register and its halves or quarters, the lowest first"""
		parts = [p.strip() for p in (to if to.startswith("{") else source).strip("{}").split(",")]
		width = BYTES[kind] // len(parts)
		bits = "b%d" % (8 * width)
		if to.startswith("{"):
			moves = " ".join(self.assign(p, f"({word(width)})(x >> {8 * width * n})", bits)
			                 for n, p in enumerate(parts) if p != "_")
			return f"{{ uint64_t x = {self.bits(source, kind)}; {moves} }}"
		joined = " | ".join(f"(uint64_t){self.bits(p, bits)} << {8 * width * n}" for n, p in enumerate(parts))
		return self.assign(to, joined, kind)

	def op_cvta(self, i, modifiers, kind, to, source):
		"""Between generic addresses, which are the host's, and those of a space"""
		way, space = ("to", modifiers[1]) if modifiers[0] == "to" else ("from", modifiers[0])
		assert kind == "u64" and space in ("global", "shared", "local", "param")
		return self.assign(to, f"ptx_{way}_{space}(g, {self.bits(source, 'b64')})", "b64")

	def op_setp(self, i, modifiers, kind, to, a, b, with_predicate=None):
		comparison, a, b = modifiers[0], self.value(a, kind), self.value(b, kind)
		unordered = f"({a} != {a} || {b} != {b})"
		if kind[0] == "f" and comparison in ("num", "nan"):
			test = unordered if comparison == "nan" else f"!{unordered}"
		elif kind[0] == "f" and comparison.endswith("u"):
			test = f"({unordered} || {a} {COMPARE[comparison[:-1]]} {b})"
		elif kind[0] == "f" and comparison == "ne":
			test = f"(!{unordered} && {a} != {b})"
		else:
			test = f"{a} {COMPARE[comparison]} {b}"
		if len(modifiers) > 1:
			test = f"({test}) {BITWISE[modifiers[1]]} {self.bits(with_predicate, 'pred')}"
		assert "|" not in to and (len(modifiers) > 1) == (with_predicate is not None)
		return self.assign(to, test, "pred")

	def op_selp(self, i, modifiers, kind, to, a, b, predicate):
		kind = kind if kind[0] == "s" else "b%d" % (8 * BYTES[kind])
		return self.assign(to, f"{self.name(predicate)} ? {self.bits(a, kind)} : {self.bits(b, kind)}", kind)

	def bitwise(self, i, modifiers, kind, to, a, b):
		assert not modifiers
		return self.assign(to, f"{self.bits(a, kind)} {BITWISE[i.opcode]} {self.bits(b, kind)}", kind)

	op_and = op_or = op_xor = bitwise

	def op_not(self, i, modifiers, kind, to, a):
		return self.assign(to, f"{'!' if kind == 'pred' else '~'}{self.bits(a, kind)}", kind)

	def op_popc(self, i, modifiers, kind, to, a):
		assert not modifiers and kind == "b32"
		return self.assign(to, f"__builtin_popcount({self.bits(a, kind)})", kind)

	def op_neg(self, i, modifiers, kind, to, a):
		assert not modifiers and kind[0] == "s"
		return self.assign(to, f"0 - {self.bits(a, kind)}", kind)

	def sum(self, i, modifiers, kind, to, a, b):
		sign = {"add": "+", "sub": "-", "mul": "*"}[i.opcode]
		if kind[0] == "f":
			assert modifiers in (["rn"], [])
			return self.assign_float(to, f"{self.value(a, kind)} {sign} {self.value(b, kind)}", kind)
		assert not modifiers
		return self.assign(to, f"{self.bits(a, kind)} {sign} {self.bits(b, kind)}", kind)

	op_add = op_sub = sum

	def op_mul(self, i, modifiers, kind, to, a, b):
		if kind[0] == "f":
			return self.sum(i, modifiers, kind, to, a, b)
		return self.product(modifiers, kind, to, a, b, None)

	def op_mad(self, i, modifiers, kind, to, a, b, c):
		return self.product(modifiers, kind, to, a, b, c)

	def product(self, modifiers, kind, to, a, b, c):
		"""a * b, and + c if there is one: the low half, or twice as wide"""
		wide = {"wide": True, "lo": False}[modifiers[0]]
		width = BYTES[kind] * (2 if wide else 1)
		result = ("s" if kind[0] == "s" else "b") + str(8 * width)
		extend = f"(uint64_t)({signed(width)})" if kind[0] == "s" else "(uint64_t)"
		assert len(modifiers) == 1 and width <= 8
		product = f"{extend}{self.value(a, kind)} * {extend}{self.value(b, kind)}"
		if c:
			product += f" + {self.bits(c, 'b%d' % (8 * width))}"
		return self.assign(to, f"({word(width)})({product})", result)

	def op_fma(self, i, modifiers, kind, to, a, b, c):
		assert modifiers == ["rn"]
		operands = ", ".join(self.value(x, kind) for x in (a, b, c))
		return self.assign_float(to, f"{'fmaf' if kind == 'f32' else 'fma'}({operands})", kind)

	def divide(self, i, modifiers, kind, to, a, b):
		if kind[0] == "f":
			assert modifiers == ["rn"] and i.opcode == "div"
			return self.assign_float(to, f"{self.value(a, kind)} / {self.value(b, kind)}", kind)
		assert not modifiers and BYTES[kind] >= 4
		return self.assign(to, f"ptx_{i.opcode}_{kind}({self.bits(a, kind)}, {self.bits(b, kind)})", kind)

	op_div = op_rem = divide

	def extreme(self, i, modifiers, kind, to, a, b):
		assert not modifiers
		if kind[0] == "f":
			call = f"ptx_{i.opcode}_{kind}({self.bits(a, kind)}, {self.bits(b, kind)})"
			return self.assign(to, call, "b" + kind[1:])
		sign = "<" if i.opcode == "min" else ">"
		test = f"{self.value(a, kind)} {sign} {self.value(b, kind)}"
		return self.assign(to, f"{test} ? {self.bits(a, kind)} : {self.bits(b, kind)}", kind)

	op_min = op_max = extreme

	def shift(self, i, modifiers, kind, to, a, by):
		"""A shift by the width or more gives zeros, or the sign's bit."""
		width, by = 8 * BYTES[kind], self.bits(by, "b32")
		if i.opcode == "shr" and kind[0] == "s":
			return self.assign(to, f"{self.value(a, kind)} >> ({by} < {width} ? {by} : {width - 1})", kind)
		sign = "<<" if i.opcode == "shl" else ">>"
		shifted = f"({word(BYTES[kind])})({self.bits(a, kind)} {sign} ({by} & {width - 1}))"
		return self.assign(to, f"{by} < {width} ? {shifted} : 0", kind)

	op_shl = op_shr = shift

	def op_bfi(self, i, modifiers, kind, to, a, b, position, length):
		operands = [self.bits(a, kind), self.bits(b, kind), self.bits(position, "b32"), self.bits(length, "b32")]
		return self.assign(to, f"ptx_bfi({', '.join(operands)}, {8 * BYTES[kind]})", kind)

	def op_cvt(self, i, modifiers, kind, to, a):
		result, modifiers = modifiers[-1], modifiers[:-1]
		form = (".".join(modifiers), result, kind)
		if form == ("", "f32", "f16"):
			return self.assign(to, f"ptx_widen_f16({self.bits(a, 'b16')})", "b32")
		if form == ("rn", "f16", "f32"):
			return self.assign(to, f"ptx_narrow_f16({self.value(a, kind)})", "b16")
		if form in (("", "f64", "f32"), ("rn", "f32", "f64")) or \
				(modifiers == ["rn"] and result[0] == "f" and kind[0] in "us"):
			c_type = "float" if result == "f32" else "double"
			return self.assign_float(to, f"({c_type}){self.value(a, kind)}", result)
		if form == ("rzi", "s32", "f64"):
			return self.assign(to, f"ptx_truncate({self.value(a, kind)})", result)
		assert not modifiers and result[0] in "us" and kind[0] in "us"
		return self.assign(to, self.value(a, kind), result)

	# ---- the function ----------------------------------------------------------------------------------------

	def write(self, file):
		kernel = self.kernel
		file.write(f"/* {kernel.name} of {kernel.module.name}, translated by ptx_to_c */\n")
		file.write('#include "tests/fakes/ptx/ptx_run.h"\n\nstatic void run(struct ptx_thread *g)\n{\n')
		for register in sorted(self.used):
			file.write(f"\t{word(self.width_of(register))} {register[1:]} = 0;\n")
		file.write(f'#line 1 "{kernel.module.name}"\n')
		file.write("\n".join(self.out))
		file.write(f'\n}}\n#line 1 "{kernel.name}"\n\nstatic const struct ptx_source sources[] = {{\n')
		last = None
		for item in kernel.code:
			if isinstance(item, Instruction) and item.source != last:
				last = item.source
				file.write(f'\t{{ {item.line}, "{kernel.module.files.get(last[0], "?")}", {last[1]} }},\n')
		size = kernel.size
		file.write("};\n\n"
		           f"const struct ptx_kernel ptx_{kernel.name} = {{\n\t.name = \"{kernel.name}\",\n"
		           f"\t.module = \"{kernel.module.name}\",\n\t.run = run,\n\t.shared_bytes = {size['shared']},\n"
		           f"\t.local_bytes = {size['local']},\n\t.param_bytes = {size['param']},\n"
		           "\t.sources = sources,\n\t.nsources = sizeof(sources) / sizeof(sources[0]),\n};\n")


def main():
	options = argparse.ArgumentParser(description="Translate the kernels of a PTX file to C, each to FOLDER/KERNEL.c.")
	options.add_argument("ptx", metavar="FILE.ptx")
	options.add_argument("folder", metavar="FOLDER")
	arguments = options.parse_args()
	try:
		for kernel in Module(arguments.ptx, arguments.ptx.split("/")[-1]).kernels:
			translator = Translator(kernel)
			translator.run()
			with open(f"{arguments.folder}/{kernel.name}.c", "w", encoding="ascii") as file:
				translator.write(file)
	except (PtxError, OSError) as error:
		sys.exit(f"ptx_to_c: {error}")


if __name__ == "__main__":
	main()
