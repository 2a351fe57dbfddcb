#!/usr/bin/env python3
"""ptx_rules - what must hold for the PTX of kernels whose memory other GPUs and the host read and write

Called by check_ptx.sh and gpu_races.sh. Each breach is a line that names kernel, PTX line and source line, or the
kernel. `--ptxas` reads what `ptxas -v` printed: the kernels' registers and spills; `--sass` reads machine code.
"""
import argparse
import re
import sys

from ptx_module import BYTES, Instruction, Module, PtxError

STRONG = {"relaxed", "acquire", "release"}


def bytes_of(instruction):
	vector = [int(m[1]) for m in instruction.parts if m in ("v2", "v4")]
	return BYTES[instruction.type] * (vector[0] if vector else 1)


def breaches_of_order(kernel, accesses):
	for i in accesses:
		place = kernel.where(i.line, i.source)
		if STRONG & set(i.parts) and "sys" not in i.parts:
			yield f"{place}: {'.'.join(i.parts)} has not the scope .sys, so a peer or the host may never see it"
		if "nc" in i.parts:
			yield f"{place}: {'.'.join(i.parts)} reads by the non-coherent path memory that peers write"


def breaches(kernel, vectors):
	accesses = [i for i in kernel.code if isinstance(i, Instruction) and i.opcode in ("ld", "st")]
	yield from breaches_of_order(kernel, accesses)
	for opcode in ("ld", "st") if vectors else ():
		if not any(i.opcode == opcode and bytes_of(i) == 16 and not {"shared", "local", "param"} & set(i.parts)
		           for i in accesses):
			yield f"{kernel.name}: no {opcode} of 16 bytes"


def breaches_of_ptxas(path, registers):
	"""Lines of ptxas: `Compiling entry function 'NAME'`, `... bytes spill stores ...`, `Used N registers ...`"""
	name, seen = "?", 0
	with open(path, encoding="utf-8") as file:
		for line in file:
			name = (re.search(r"entry function '(\w+)'", line) or [None, name])[1]
			spilled, used = re.search(r"(\d+) bytes spill stores", line), re.search(r"Used (\d+) registers", line)
			if spilled and int(spilled[1]):
				yield f"{name}: {spilled[1]} bytes of registers are spilled"
			if used:
				seen += 1
				if int(used[1]) > registers:
					yield f"{name}: {used[1]} registers, more than {registers}"
	if not seen:
		yield f"{path}: ptxas names no kernel"


def breaches_of_sass(path):
	"""Lines of nvdisasm -c: `.text.NAME:`, and instructions such as `LDG.E.128 R4, ... ;`"""
	name, seen = None, {}
	with open(path, encoding="utf-8") as file:
		for number, line in enumerate(file, 1):
			name = (re.match(r"\.text\.(\w+):", line) or [None, name])[1]
			access = re.search(r"\b(LDG?|STG?)\.E(\.[A-Z0-9.]*)?", line)
			if not access or not name:
				continue
			opcode, parts = access[1], (access[2] or "").split(".")
			seen.setdefault(name, set()).add((opcode, "128" in parts))
			if "STRONG" in parts and "SYS" not in parts:
				yield f"{name}, line {number}: {access[0]} does not reach other GPUs and the host"
			if "CONSTANT" in parts:
				yield f"{name}, line {number}: {access[0]} reads by the non-coherent path"
			if opcode in ("LD", "ST") and "128" in parts:
				yield f"{name}, line {number}: {access[0]} finds the space of its address when it runs"
	for kernel, accesses in seen.items():
		for opcode in ("LDG", "STG"):
			if (opcode, True) not in accesses:
				yield f"{kernel}: no {opcode} of 16 bytes"
	if not seen:
		yield f"{path}: nvdisasm names no kernel"


def bounds_of(path):
	"""Lines `KERNEL INSTRUCTIONS BYTES`; # begins a comment"""
	with open(path, encoding="utf-8") as file:
		lines = [line.split() for line in file if line.strip() and line[0] != "#"]
	return {name: (int(instructions), int(size)) for name, instructions, size in lines}


def breaches_of_size(kernels, bounds, listing):
	"""ptxas's time grows with the PTX instructions of a kernel. listing: lines `KERNEL BYTES` of machine code"""
	with open(listing, encoding="utf-8") as file:
		sizes = {name: int(size) for name, size in (line.split() for line in file)}
	for kernel in kernels:
		most, code = bounds.get(kernel.name, (None, None))
		n = sum(isinstance(i, Instruction) for i in kernel.code)
		if most is None or kernel.name not in sizes:
			yield f"{kernel.name}: no bounds, or no machine code"
			continue
		print(f"# {kernel.name}: {n} PTX instructions, {sizes[kernel.name]} bytes of machine code")
		if n > most:
			yield f"{kernel.name}: {n} PTX instructions, more than {most}"
		if sizes[kernel.name] > code:
			yield f"{kernel.name}: {sizes[kernel.name]} bytes of machine code, more than {code}"


def main():
	options = argparse.ArgumentParser(description="Check rules on kernels; exit with 1 if one is broken.")
	options.add_argument("ptx", metavar="FILE.ptx", nargs="*")
	options.add_argument("--vectors", action="store_true", help="each kernel loads and stores 16 bytes at once")
	options.add_argument("--ptxas", metavar="LOG", help="the output of ptxas -v")
	options.add_argument("--registers", type=int, default=128, help="most registers of a thread (128)")
	options.add_argument("--sass", metavar="LISTING", help="the output of nvdisasm -c: machine code of kernels")
	options.add_argument("--bounds", metavar="FILE", help="most PTX instructions and bytes of machine code of each kernel")
	options.add_argument("--code", metavar="LISTING", help="for --bounds: each kernel's bytes of machine code")
	arguments = options.parse_args()
	found = []
	try:
		kernels = [kernel for path in arguments.ptx for kernel in Module(path, path.split("/")[-1]).kernels]
		for kernel in kernels:
			found += breaches(kernel, arguments.vectors)
		if arguments.bounds:
			found += breaches_of_size(kernels, bounds_of(arguments.bounds), arguments.code)
		if arguments.sass:
			found += breaches_of_sass(arguments.sass)
		if not kernels and not arguments.ptxas and not arguments.sass:
			found.append("ptx_rules: no kernel")
		if arguments.ptxas:
			found += breaches_of_ptxas(arguments.ptxas, arguments.registers)
	except (PtxError, OSError) as error:
		found.append(f"ptx_rules: {error}")
	print("\n".join(found))
	sys.exit(1 if found else 0)


if __name__ == "__main__":
	main()
