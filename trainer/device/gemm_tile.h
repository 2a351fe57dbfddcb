/*
 * gemm_tile.h - the innermost loop of gemm.c, included once for each instruction set
 *
 * Parameters: TILE (name of the function), TILE_TARGET (its attribute), VEC and LANES (vector
 * type and its number of floats), ROWS x COLS (the tile, COLS in vectors; it must fit into the
 * registers), LOAD, STORE, SPLAT, FMA; PANEL, unless it is ROWS. All are undefined at the end.
 *
 * a: k slices of PANEL floats; b: k slices of COLS vectors; c: the tile in place. fresh: start
 * from 0 instead of from c.
 */
#ifndef PANEL
#define PANEL ROWS
#endif
TILE_TARGET static void TILE(size_t k, const float *a, const float *b, float *c, size_t ldc,
			     bool fresh)
{
	VEC sum[ROWS][COLS];

#pragma GCC unroll 32
	for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
		for (int j = 0; j < COLS; j++)
			sum[i][j] = fresh ? SPLAT(0.0f) : LOAD(c + i * ldc + j * LANES);
	for (; k; k--, a += PANEL, b += COLS * LANES) {
		VEC row[COLS];

#pragma GCC unroll 8
		for (int j = 0; j < COLS; j++)
			row[j] = LOAD(b + j * LANES);
#pragma GCC unroll 32
		for (int i = 0; i < ROWS; i++) {
			VEC one = SPLAT(a[i]);

#pragma GCC unroll 8
			for (int j = 0; j < COLS; j++)
				sum[i][j] = FMA(one, row[j], sum[i][j]);
		}
	}
#pragma GCC unroll 32
	for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 8
		for (int j = 0; j < COLS; j++)
			STORE(c + i * ldc + j * LANES, sum[i][j]);
}

#undef TILE
#undef TILE_TARGET
#undef VEC
#undef LANES
#undef ROWS
#undef PANEL
#undef COLS
#undef LOAD
#undef STORE
#undef SPLAT
#undef FMA
