/*
 * program_memory.c - arenas of all kinds of memory, freed and allocated again at random
 *
 * A later arena may have the addresses of an earlier one, in memory of another kind.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/programs/program.h"

enum { ALLOCATED, PRIVATE, SHARED, HEAP, ARENA_KINDS }; /* ALLOCATED: by tuttiMemAlloc */

static bool close_arena(struct program_rank *r, struct program_arena *a)
{
	bool ok = program_ok(r, NULL, tuttiCommDeregister(r->comms[0].comm, a->handle));

	if (a->kind == ALLOCATED)
		return program_ok(r, NULL, tuttiMemFree(a->memory)) && ok;
	if (a->kind == HEAP)
		free(a->memory);
	else
		munmap(a->memory, a->size);
	return ok;
}

/* least: bytes, in multiples of a page */
static bool open_arena(struct program_rank *r, struct program_arena *a, size_t least)
{
	int flags = MAP_ANONYMOUS;
	void *memory = NULL;

	*a = (struct program_arena){ .kind = (int)program_own(r, ARENA_KINDS) };
	a->size = (size_t)1 << (18 + program_own(r, 8));
	if (a->size < least)
		a->size = least;
	flags |= a->kind == SHARED ? MAP_SHARED : MAP_PRIVATE;
	if (a->kind == ALLOCATED && !program_ok(r, NULL, tuttiMemAlloc(&memory, a->size)))
		return false;
	if (a->kind == HEAP)
		memory = malloc(a->size);
	else if (a->kind != ALLOCATED)
		memory = mmap(NULL, a->size, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (!memory || memory == MAP_FAILED)
		return program_fails(r, NULL, "no memory");
	a->memory = memory;
	return program_own(r, 3) ||
	       program_ok(r, NULL,
			  tuttiCommRegister(r->comms[0].comm, memory, a->size, &a->handle));
}

bool program_memory_open(struct program_rank *r)
{
	for (int i = 0; i < PROGRAM_ARENAS; i++)
		if (!open_arena(r, &r->arenas[i], 0))
			return false;
	return true;
}

bool program_memory_close(struct program_rank *r)
{
	for (int i = 0; i < PROGRAM_ARENAS; i++)
		if (!close_arena(r, &r->arenas[i]))
			return false;
	return true;
}

static struct program_arena *with_room(struct program_rank *r, size_t bytes)
{
	int first = (int)program_own(r, PROGRAM_ARENAS);

	for (int i = 0; i < PROGRAM_ARENAS; i++) {
		struct program_arena *a = &r->arenas[(first + i) % PROGRAM_ARENAS];

		if (bytes <= a->size - a->used)
			return a;
	}
	return NULL;
}

bool program_memory_reserve(struct program_rank *r, size_t bytes)
{
	if (with_room(r, bytes))
		return true;
	if (!program_drain(r))
		return false;
	for (int i = 0; i < PROGRAM_ARENAS; i++) {
		struct program_arena *a = &r->arenas[i];

		a->used = 0;
		if ((i == 0 && a->size < bytes) || program_own(r, 2))
			if (!close_arena(r, a) ||
			    !open_arena(r, a, i ? 0 : (bytes + 4095) & ~(size_t)4095))
				return false;
	}
	return true;
}

bool program_memory_take(struct program_rank *r, size_t bytes, size_t shift, char **ret_memory)
{
	size_t all = (bytes + shift + 3 * PROGRAM_GUARD) & ~(size_t)(PROGRAM_GUARD - 1);
	struct program_arena *a;

	if (!program_memory_reserve(r, all))
		return false;
	a = with_room(r, all);
	*ret_memory = a->memory + a->used + PROGRAM_GUARD + shift;
	a->used += all;
	return true;
}
