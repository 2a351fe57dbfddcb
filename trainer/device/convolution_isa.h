/*
 * convolution_isa.h - the innermost loops of convolution.c, included once for each instruction set
 *
 * Parameters: KERNEL (name of a function), KERNEL_TARGET (its attribute), KERNEL_ISA, VEC and LANES
 * (vector type and its number of floats), PANEL (planes at once: twice as many sums must fit into the
 * registers), TAP_ROWS (rows of the window whose sums fit into the registers), LOAD, STORE,
 * STORE_SOME (the first n floats), SPLAT, FMA, ADD. All are undefined at the end.
 *
 * Borders are REACH zeros on each side, so an image has rows of ROW(side) floats. Vectors cross the end
 * of a row and see what follows; those columns are not stored.
 */

/* sum[i][r] = planes i of a panel, rows r = 0, 1 */
#define EACH_SUM(i, r)                                          \
	_Pragma("GCC unroll 8") for (int i = 0; i < PANEL; i++) \
		_Pragma("GCC unroll 2") for (int r = 0; r < 2; r++)

/* One step of the chains: += w[plane] * the vectors at `at` and a row below. */
#define EXTEND(sum, w, at)                                          \
	do {                                                        \
		VEC both[2] = { LOAD(at), LOAD((at) + row) };       \
                                                                    \
		EACH_SUM(i, r)                                      \
		sum[i][r] = FMA(SPLAT((w)[i]), both[r], sum[i][r]); \
	} while (0)

/* Two rows and LANES columns of a panel */
KERNEL_TARGET static inline __attribute__((always_inline)) void KERNEL(store_panel)(
	size_t side, size_t y, size_t x, size_t stored, VEC sum[PANEL][2], float *to, size_t stride)
{
	size_t columns = side - x < LANES ? side - x : LANES;

	for (size_t i = 0; i < stored; i++, to += stride)
		for (size_t r = 0; r < 2 && y + r < side; r++) {
			float *at = to + (y + r) * side + x;

			if (columns == LANES)
				STORE(at, sum[i][r]);
			else
				STORE_SOME(at, columns, sum[i][r]);
		}
}

KERNEL_TARGET static void KERNEL(forward)(const struct train_convolution *c, const float *x,
					  const float *w, size_t stored, float *y, size_t stride)
{
	size_t side = c->side, row = ROW(side), plane = PLANE(side);

	for (size_t down = 0; down < side; down += 2) {
		for (size_t right = 0; right < side; right += LANES) {
			const float *from = x + down * row + right, *weight = w;
			VEC sum[PANEL][2];

			EACH_SUM(i, r)
			sum[i][r] = SPLAT(0.0f);
			for (size_t p = 0; p < c->from; p++, from += plane)
				for (size_t a = 0; a < TRAIN_WINDOW; a++)
#pragma GCC unroll 5
					for (size_t b = 0; b < TRAIN_WINDOW; b++, weight += PANEL)
						EXTEND(sum, weight, from + a * row + b);
			EACH_SUM(i, r)
			sum[i][r] = ADD(SPLAT(weight[i]), sum[i][r]);
			KERNEL(store_panel)(side, down, right, stored, sum, y, stride);
		}
	}
}

KERNEL_TARGET static void KERNEL(back_input)(const struct train_convolution *c, const float *dy,
					     const float *w, size_t stored, float *dx)
{
	size_t side = c->side, row = ROW(side), plane = PLANE(side);

	for (size_t down = 0; down < side; down += 2) {
		for (size_t right = 0; right < side; right += LANES) {
			const float *weight = w;
			VEC total[PANEL][2];

			EACH_SUM(i, r)
			total[i][r] = SPLAT(0.0f);
			for (size_t tap = 0; tap < TAPS; tap++) {
				const float *from = dy +
						    (down + 2 * REACH - tap / TRAIN_WINDOW) * row +
						    right + 2 * REACH - tap % TRAIN_WINDOW;
				VEC sum[PANEL][2];

				EACH_SUM(i, r)
				sum[i][r] = SPLAT(0.0f);
				for (size_t o = 0; o < c->to; o++, from += plane, weight += PANEL)
					EXTEND(sum, weight, from);
				EACH_SUM(i, r)
				total[i][r] = ADD(total[i][r], sum[i][r]);
			}
			KERNEL(store_panel)(side, down, right, stored, total, dx, side * side);
		}
	}
}

/* Rows first .. first + count - 1 of the window of one plane. */
KERNEL_TARGET static inline __attribute__((always_inline)) void KERNEL(back_taps)(
	size_t side, const float *x, const float *dy, size_t first, int count, float *sums)
{
	VEC sum[TAP_ROWS][TRAIN_WINDOW];
	size_t row = ROW(side);

	sums += first * TRAIN_WINDOW * LANES;
#pragma GCC unroll 5
	for (int a = 0; a < count; a++)
#pragma GCC unroll 5
		for (int b = 0; b < TRAIN_WINDOW; b++)
			sum[a][b] = LOAD(sums + (a * TRAIN_WINDOW + b) * LANES);
	for (size_t down = 0; down < side; down++) {
		const float *from = x + (down + first) * row;

		for (size_t right = 0; right < side; right++, dy += LANES, from++) {
			VEC gradient = LOAD(dy);

#pragma GCC unroll 5
			for (int a = 0; a < count; a++)
#pragma GCC unroll 5
				for (int b = 0; b < TRAIN_WINDOW; b++)
					sum[a][b] = FMA(SPLAT(from[(size_t)a * row + (size_t)b]),
							gradient, sum[a][b]);
		}
	}
#pragma GCC unroll 5
	for (int a = 0; a < count; a++)
#pragma GCC unroll 5
		for (int b = 0; b < TRAIN_WINDOW; b++)
			STORE(sums + (a * TRAIN_WINDOW + b) * LANES, sum[a][b]);
}

KERNEL_TARGET static void KERNEL(back_weights)(const struct train_convolution *c, const float *x,
					       const float *dy, float *sums)
{
	size_t side = c->side;
	VEC bias;

	for (size_t p = 0; p < c->from; p++, x += PLANE(side), sums += TAPS * LANES) {
		size_t a = 0;

		for (; a + TAP_ROWS <= TRAIN_WINDOW; a += TAP_ROWS)
			KERNEL(back_taps)(side, x, dy, a, TAP_ROWS, sums);
		if (a < TRAIN_WINDOW)
			KERNEL(back_taps)(side, x, dy, a, TRAIN_WINDOW % TAP_ROWS, sums);
	}
	bias = LOAD(sums);
	for (size_t i = 0; i < side * side; i++)
		bias = ADD(LOAD(dy + i * LANES), bias);
	STORE(sums, bias);
}

static const struct train_convolution_kernels KERNEL(kernels) = {
	.isa = KERNEL_ISA,
	.lanes = LANES,
	.panel = PANEL,
	.forward = KERNEL(forward),
	.back_input = KERNEL(back_input),
	.back_weights = KERNEL(back_weights),
};

#undef EACH_SUM
#undef EXTEND
#undef KERNEL
#undef KERNEL_TARGET
#undef KERNEL_ISA
#undef VEC
#undef LANES
#undef PANEL
#undef TAP_ROWS
#undef LOAD
#undef STORE
#undef STORE_SOME
#undef SPLAT
#undef FMA
#undef ADD
