/*
 * gemm.c - the product of two float matrices, bit-reproducible (gemm.h)
 *
 * The usual blocking (Goto and van de Geijn 2008, Anatomy of high-performance matrix
 * multiplication): the innermost tile reads panels of both operands, sized so that b's panel stays in L1
 * and a's block in L2. Panels of large operands are packed, so that reads are sequential; others are read
 * in place, where their lines do not displace each other from the caches. Between blocks of k a
 * tile is stored to c and loaded again, which is exact: the chain of multiply-adds continues
 * unchanged.
 *
 * A new instruction set is one more inclusion of gemm_tile.h and one row of `isas`.
 */
#include "trainer/device/gemm.h"
#include "trainer/device/isa.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BLOCK_K = 384, BLOCK_M = 120, BLOCK_N = 512, ALIGN = 64 };
enum { TILE_FLOATS_MAX = 12 * 32 };
enum { SET_FLOATS = 512 };

typedef void tile_fn(size_t k, const float *a, size_t a_step, const float *b, size_t b_step,
		     float *c, size_t ldc, bool fresh);

/* ---- the tiles ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#define TILE tile_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define VEC __m512
#define LANES 16
#define ROWS 12
#define COLS 2
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPLAT _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#include "trainer/device/gemm_tile.h"

/* the last rows of a c whose height is no multiple of 12, but of 4 */
#define TILE low_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define VEC __m512
#define LANES 16
#define ROWS 4
#define COLS 2
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPLAT _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#include "trainer/device/gemm_tile.h"

#define TILE narrow_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define VEC __m512
#define LANES 16
#define ROWS 24
#define COLS 1
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPLAT _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#include "trainer/device/gemm_tile.h"

#define TILE tile_avx2
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define VEC __m256
#define LANES 8
#define ROWS 6
#define COLS 2
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPLAT _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#include "trainer/device/gemm_tile.h"

#define TILE narrow_avx2
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define VEC __m256
#define LANES 8
#define ROWS 12
#define COLS 1
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPLAT _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#include "trainer/device/gemm_tile.h"
#endif

#define TILE tile_scalar
#define TILE_TARGET
#define VEC float
#define LANES 1
#define ROWS 4
#define COLS 4
#define LOAD load_one
#define STORE store_one
#define SPLAT(x) (x)
#define FMA __builtin_fmaf
#include "trainer/device/gemm_tile.h"

struct gemm_tile {
	size_t rows, cols; /* in floats */
	tile_fn *slices, *lines;
};
#define TILES(name) name, name##_lines

/* best first; narrow: for a c that has at most as many columns; low: for the last rows of a's panels for
 * wide tiles, if it is there */
static const struct gemm_isa {
	const char *isa;
	struct gemm_tile wide, narrow, low;
	bool (*present)(void);
} isas[] = {
#if defined(__x86_64__)
	{ "avx512",
	  { 12, 32, TILES(tile_avx512) },
	  { 24, 16, TILES(narrow_avx512) },
	  { 4, 32, TILES(low_avx512) },
	  has_avx512 },
	{ "avx2", { 6, 16, TILES(tile_avx2) }, { 12, 8, TILES(narrow_avx2) }, { 0 }, has_avx2 },
#endif
	{ "scalar", { 4, 4, TILES(tile_scalar) }, { 4, 4, TILES(tile_scalar) }, { 0 }, has_scalar },
};

struct train_gemm {
	const struct gemm_isa *kind;
	float *a, *b; /* packed blocks */
};

/* ---- packing -------------------------------------------------------------------------------- */

static size_t round_up(size_t value, size_t unit)
{
	return (value + unit - 1) / unit * unit;
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* to[p][i] = from[i][p] of 4 x 4 floats */
static inline void transpose_four(const float *from, size_t stride, float *to, size_t width)
{
	four a = *(const four *)from, b = *(const four *)(from + stride);
	four c = *(const four *)(from + 2 * stride), d = *(const four *)(from + 3 * stride);
	four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
	four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);

	*(four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
	*(four *)(to + width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
	ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
	cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
	*(four *)(to + 2 * width) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
	*(four *)(to + 3 * width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* to[p * width + i] = from[i * stride + p] */
static void pack_lines(const float *from, size_t stride, size_t lines, size_t k, size_t width,
		       float *to)
{
	size_t fours = lines & ~(size_t)3, deep = k & ~(size_t)3;

	for (size_t p = 0; p < deep; p += 4)
		for (size_t i = 0; i < fours; i += 4)
			transpose_four(from + i * stride + p, stride, to + p * width + i, width);
	for (size_t i = 0; i < lines; i++)
		for (size_t p = i < fours ? deep : 0; p < k; p++)
			to[p * width + i] = from[i * stride + p];
}

/* to[panel][p][i] = from[p][panel * width + i], row by row of `from`, so that reads are sequential */
static void pack_slices(const float *from, size_t stride, size_t lines, size_t k, size_t width,
			float *to)
{
	for (size_t p = 0; p < k; p++, from += stride, to += width) {
		float *slice = to;

		for (size_t l = 0; l < lines; l += width, slice += width * k) {
			size_t wide = lines - l < width ? lines - l : width, i = 0;

			for (; i + 4 <= wide; i += 4)
				*(four *)(slice + i) = *(const four *)(from + l + i);
			for (; i < wide; i++)
				slice[i] = from[l + i];
		}
	}
}

/* Copies lines x k of `from`, starting at (line, first), into panels of `width` lines: k slices of
 * width floats each, short panels padded with zeros. A line is a row of a, or a column of b. */
static void pack(struct train_matrix from, size_t line, size_t lines, size_t first, size_t k,
		 size_t width, float *to)
{
	const float *at = from.at + first * from.stride + line;

	if (lines % width)
		memset(to + lines / width * width * k, 0, width * k * sizeof(*to));
	for (size_t l = 0, some = 4 * width; from.transposed && l < lines; l += some)
		pack_slices(at + l, from.stride, lines - l < some ? lines - l : some, k, width,
			    to + l * k);
	if (from.transposed)
		return;
	at = from.at + line * from.stride + first;
	for (size_t l = 0; l < lines; l += width, to += width * k)
		pack_lines(at + l * from.stride, from.stride, lines - l < width ? lines - l : width,
			   k, width, to);
}

/* ---- the product ---------------------------------------------------------------------------- */

/* Lines as tiles read them, packed or in place: line i is at + i * next. A line is a row of a, or a column
 * of b. */
struct gemm_lines {
	const float *at;
	size_t next, step; /* step: of the tile's functions */
	bool lines;        /* the tile's function, for a */
};

/* Whole panels, and the lines behind the last of them. */
struct gemm_panels {
	struct gemm_lines whole, last;
};

/* Panels of lines `line` to line + lines - 1 and slices `first` to first + k - 1; low: the size of a last
 * panel that tiles read without a line behind it. memory: for what must be packed */
static struct gemm_panels panels_of(struct train_matrix from, size_t line, size_t lines,
				    size_t first, size_t k, size_t width, size_t low, bool in_place,
				    float *memory)
{
	size_t rest = lines % width, whole = lines - rest;
	struct gemm_lines packed = { memory, k, width, false }, place = packed;
	struct gemm_panels p = { packed, packed };

	if (from.transposed)
		place = (struct gemm_lines){ from.at + first * from.stride + line, 1, from.stride,
					     false };
	else
		place = (struct gemm_lines){ from.at + line * from.stride + first, from.stride,
					     from.stride, true };
	if (!in_place) {
		pack(from, line, lines, first, k, width, memory);
		p.last.at += whole * k;
		return p;
	}
	p.whole = place;
	if (rest == low) {
		p.last = place;
		p.last.at += whole * place.next;
	} else if (rest) {
		pack(from, line + whole, rest, first, k, width, memory);
	}
	return p;
}

/* A panel is read once for each panel of the other operand, so that packing costs more than it saves if
 * those are few: `others` lines. Slices or lines whose distance is a multiple of some 2 KiB displace each
 * other from L1; the tile's vectors are slices. */
static bool stays_in_place(struct train_matrix from, size_t others, bool vectors)
{
	if (vectors)
		return from.transposed && from.stride % (2 * SET_FLOATS);
	return others <= BLOCK_N && (from.transposed || from.stride % SET_FLOATS);
}

/* The rows of a shorter tile, or 0. */
static size_t low_rows(const struct train_gemm *g, const struct gemm_tile *kind)
{
	return kind == &g->kind->wide ? g->kind->low.rows : 0;
}

/* A tile that exceeds c's edge: computed in a local buffer, its inner part copied. */
static void edge_tile(tile_fn *compute, const struct gemm_tile *tile, size_t k, const float *a,
		      size_t a_step, const float *b, size_t b_step, float *c, size_t ldc,
		      size_t rows, size_t cols, bool fresh)
{
	float inner[TILE_FLOATS_MAX] __attribute__((aligned(ALIGN))) = { 0 };

	if (!fresh)
		for (size_t i = 0; i < rows; i++)
			memcpy(inner + i * tile->cols, c + i * ldc, cols * sizeof(*c));
	compute(k, a, a_step, b, b_step, inner, tile->cols, fresh);
	for (size_t i = 0; i < rows; i++)
		memcpy(c + i * ldc, inner + i * tile->cols, cols * sizeof(*c));
}

/* c[m x n] (+)= a * b over k slices */
static void block(const struct train_gemm *g, const struct gemm_tile *kind, size_t m, size_t n,
		  size_t k, const struct gemm_panels *a, const struct gemm_panels *b, float *c,
		  size_t ldc, bool fresh)
{
	for (size_t j = 0; j < n; j += kind->cols) {
		size_t cols = n - j < kind->cols ? n - j : kind->cols;
		struct gemm_lines bs = cols == kind->cols ? b->whole : b->last;
		const float *b_at = bs.at + (cols == kind->cols ? j : 0) * bs.next;

		for (size_t i = 0; i < m; i += kind->rows) {
			size_t rows = m - i < kind->rows ? m - i : kind->rows;
			struct gemm_lines as = rows == kind->rows ? a->whole : a->last;
			const float *a_at = as.at + (rows == kind->rows ? i : 0) * as.next;
			const struct gemm_tile *tile = rows == low_rows(g, kind) ? &g->kind->low
										 : kind;
			tile_fn *compute = as.lines ? tile->lines : tile->slices;

			if (rows == tile->rows && cols == tile->cols)
				compute(k, a_at, as.step, b_at, bs.step, c + i * ldc + j, ldc,
					fresh);
			else
				edge_tile(compute, tile, k, a_at, as.step, b_at, bs.step,
					  c + i * ldc + j, ldc, rows, cols, fresh);
		}
	}
}

void train_gemm(struct train_gemm *g, size_t m, size_t n, size_t k, struct train_matrix a,
		struct train_matrix b, float *c, size_t ldc)
{
	struct train_matrix b_lines = { b.at, b.stride, !b.transposed };
	const struct gemm_tile *tile = n <= g->kind->narrow.cols ? &g->kind->narrow
								 : &g->kind->wide;
	bool a_stays = stays_in_place(a, n, false), b_stays = stays_in_place(b_lines, m, true);

	/* equal blocks, so that the last is not a short one */
	size_t blocks = (k + BLOCK_K - 1) / BLOCK_K,
	       block_k = blocks ? (k + blocks - 1) / blocks : 1;

	if (!k)
		for (size_t i = 0; i < m; i++)
			memset(c + i * ldc, 0, n * sizeof(*c));
	for (size_t p = 0; p < k; p += block_k) {
		size_t deep = k - p < block_k ? k - p : block_k;

		for (size_t j = 0; j < n; j += BLOCK_N) {
			size_t wide = n - j < BLOCK_N ? n - j : BLOCK_N;
			struct gemm_panels bs = panels_of(b_lines, j, wide, p, deep, tile->cols, 0,
							  b_stays, g->b);

			for (size_t i = 0; i < m; i += BLOCK_M) {
				size_t high = m - i < BLOCK_M ? m - i : BLOCK_M;
				struct gemm_panels as = panels_of(a, i, high, p, deep, tile->rows,
								  low_rows(g, tile), a_stays, g->a);

				block(g, tile, high, wide, deep, &as, &bs, c + i * ldc + j, ldc,
				      p == 0);
			}
		}
	}
}

/* ---- open and close ------------------------------------------------------------------------- */

static const struct gemm_isa *find(const char *isa)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
		if (isa ? !strcmp(isa, isas[i].isa) : isas[i].present())
			return isas[i].present() ? &isas[i] : NULL;
	return NULL;
}

struct train_gemm *train_gemm_open(const char *isa)
{
	const struct gemm_isa *kind = find(isa);
	struct train_gemm *g = kind ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return NULL;
	g->kind = kind;
	g->a = aligned_alloc(ALIGN, round_up(BLOCK_M, kind->narrow.rows) * BLOCK_K * sizeof(float));
	g->b = aligned_alloc(ALIGN, round_up(BLOCK_N, kind->wide.cols) * BLOCK_K * sizeof(float));
	if (g->a && g->b)
		return g;
	train_gemm_close(g);
	return NULL;
}

void train_gemm_close(struct train_gemm *g)
{
	if (!g)
		return;
	free(g->a);
	free(g->b);
	free(g);
}
