#!/usr/bin/env python3
"""fat_binary - list what a fat binary of nvcc contains: lines `sm_90 BYTES` (machine code) and `compute_90 BYTES` (PTX)

Called by check_ptx.sh. Bytes are those in the file, where entries are compressed. NVIDIA does not document the format;
each number that is read is checked, so another format ends with an error.
"""
import struct
import sys

HEADER = struct.Struct("<IHHQ")   # magic, version, bytes of this header, bytes of the entries
ENTRY = struct.Struct("<HHIQIIHHI")   # kind, attributes, bytes of this header, bytes of the payload, 4 other fields, arch
KINDS = {1: "compute", 2: "sm"}


def entries(data):
	magic, _, at, size = HEADER.unpack_from(data)
	if magic != 0xBA55ED50 or at + size != len(data):
		raise ValueError("no fat binary")
	while at < len(data):
		kind, _, header, payload, _, _, _, _, arch = ENTRY.unpack_from(data, at)
		if kind not in KINDS or header < ENTRY.size or not 50 <= arch < 1000 or at + header + payload > len(data):
			raise ValueError(f"an unknown entry at byte {at}")
		yield f"{KINDS[kind]}_{arch}", payload
		at += header + payload


def main():
	try:
		with open(sys.argv[1], "rb") as file:
			for name, size in entries(file.read()):
				print(name, size)
	except (OSError, ValueError, struct.error) as error:
		sys.exit(f"fat_binary: {sys.argv[1]}: {error}")


if __name__ == "__main__":
	main()
