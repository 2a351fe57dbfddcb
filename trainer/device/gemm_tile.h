/*
 * gemm_tile.h - the innermost loop of gemm.c, included once for each instruction set and shape
 *
 * Parameters: TILE (name of the functions), TILE_TARGET (their attribute), VEC and LANES (vector
 * type and its number of floats), ROWS x COLS (the tile, COLS in vectors; it must fit into the
 * registers), LOAD, STORE, SPLAT, FMA. All are undefined at the end.
 *
 * Two functions: TILE reads k slices of a, a_step floats from one to the next, of which each has a
 * float for each row: a packed panel, or a transposed matrix in place. TILE_lines reads ROWS lines,
 * a_step floats from one to the next: a matrix in place. b: k slices of COLS vectors, b_step floats from
 * one to the next; c: the tile in place. fresh: start from 0 instead of from c.
 */
#define JOIN(name, suffix) name##suffix
#define LINES_OF(name) JOIN(name, _lines)

#define START                                                          \
	_Pragma("GCC unroll 32") for (int i = 0; i < ROWS; i++)        \
		_Pragma("GCC unroll 8") for (int j = 0; j < COLS; j++) \
			sum[i][j] = fresh ? SPLAT(0.0f) : LOAD(c + i * ldc + j * LANES);
#define SLICE(element)                                                         \
	do {                                                                   \
		VEC row[COLS];                                                 \
		_Pragma("GCC unroll 8") for (int j = 0; j < COLS; j++)         \
			row[j] = LOAD(b + j * LANES);                          \
		_Pragma("GCC unroll 32") for (int i = 0; i < ROWS; i++)        \
		{                                                              \
			VEC one = SPLAT(element);                              \
			_Pragma("GCC unroll 8") for (int j = 0; j < COLS; j++) \
				sum[i][j] = FMA(one, row[j], sum[i][j]);       \
		}                                                              \
	} while (0)
#define END                                                            \
	_Pragma("GCC unroll 32") for (int i = 0; i < ROWS; i++)        \
		_Pragma("GCC unroll 8") for (int j = 0; j < COLS; j++) \
			STORE(c + i * ldc + j * LANES, sum[i][j]);

TILE_TARGET static void TILE(size_t k, const float *a, size_t a_step, const float *b, size_t b_step,
			     float *c, size_t ldc, bool fresh)
{
	VEC sum[ROWS][COLS];

	START
	for (; k; k--, a += a_step, b += b_step) {
		/* in place, slices may be a page apart, where no hardware prefetches */
		__builtin_prefetch(a + 16 * a_step);
		SLICE(a[i]);
	}
	END
}

/* An address is a register, plus another one times 4 or 8: a base for three lines. */
TILE_TARGET static void LINES_OF(TILE)(size_t k, const float *a, size_t a_step, const float *b,
				       size_t b_step, float *c, size_t ldc, bool fresh)
{
	const float *base[(ROWS + 2) / 3];
	VEC sum[ROWS][COLS];

	START
	for (int i = 0; i < (ROWS + 2) / 3; i++)
		base[i] = a + 3 * (size_t)i * a_step;
	for (; k; k--, b += b_step) {
		SLICE(base[i / 3][(size_t)(i % 3) * a_step]);
#pragma GCC unroll 8
		for (int i = 0; i < (ROWS + 2) / 3; i++)
			base[i]++;
	}
	END
}

#undef TILE
#undef TILE_TARGET
#undef VEC
#undef LANES
#undef ROWS
#undef COLS
#undef LOAD
#undef STORE
#undef SPLAT
#undef FMA
#undef JOIN
#undef LINES_OF
#undef START
#undef SLICE
#undef END
