/*
 * train_kernels.cu - the trainer's GPU kernels: element-wise loops, and a matrix product with
 * the processor's bits
 *
 * Launched by device_cuda_compute.c. nvcc compiles the file to a fat binary that tutti-train
 * embeds; the fake driver of the tests compiles it as C, where a block is one thread. One thread
 * computes each result, in the order of device_host.c: no atomics, no contraction (-fmad=false),
 * own exp and log (exact.c). All bits are therefore those of --device cpu if matrix products are
 * those of the gemm kernel below (--canonical) instead of cuBLAS's.
 */
#include "trainer/device/train_kernels.h"

#include "trainer/device/exact.c"

#ifdef __CUDACC__

#define KERNEL(name, type)                                               \
	extern "C" __global__ void __launch_bounds__(TRAIN_CUDA_THREADS) \
		train_kernel_##name(const __grid_constant__ struct type p)
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS (gridDim.x * blockDim.x)
#define FMA(a, b, c) __fmaf_rn(a, b, c)

#else

/* included by tests/fakes/cuda/fake_train_kernels.c, after fake_cuda.h */
#include <math.h>

#define KERNEL(name, type)                                  \
	static void name##_with(struct type p);             \
	static void train_kernel_##name(const void *params) \
	{                                                   \
		name##_with(*(const struct type *)params);  \
	}                                                   \
	static void name##_with(struct type p)
#define THREAD fake_block
#define THREADS fake_blocks
#define FMA(a, b, c) fmaf(a, b, c)

#endif

/* Grid-stride loops: a thread processes every THREADS-th element. */
#define EACH(i, count) for (uint64_t i = THREAD; i < (count); i += THREADS)
#define EACH_32(i, count)                          \
	for (uint32_t i = THREAD, to_go = (count); \
	     i<to_go; i = to_go - i> THREADS ? i + THREADS : to_go)

KERNEL(gather, train_cuda_gather)
{
	EACH(i, p.count)
	p.x[i] = (float)p.images[i] * (1.0f / 255.0f) - p.mean;
}

KERNEL(bias, train_cuda_bias)
{
	EACH(i, p.rows * p.n)
	{
		float y = p.y[i] + p.bias[i % p.n];

		p.y[i] = !p.relu || y > 0.0f ? y : 0.0f;
	}
}

KERNEL(bias_back, train_cuda_bias_back)
{
	EACH(i, p.n)
	{
		float sum = 0.0f;

		for (uint64_t row = 0; row < p.rows; row++)
			sum += p.dy[row * p.n + i];
		p.dbias[i] = sum;
	}
}

KERNEL(add, train_cuda_add)
{
	EACH(i, p.count)
	p.to[i] += p.from[i];
}

KERNEL(blend, train_cuda_blend)
{
	EACH(i, p.count)
	p.to[i] = p.from ? p.keep * p.to[i] + p.take * p.from[i] : p.keep * p.to[i];
}

KERNEL(relu_back, train_cuda_relu_back)
{
	EACH(i, p.count)
	p.dy[i] = p.y[i] > 0.0f ? p.dy[i] : 0.0f;
}

KERNEL(descend, train_cuda_descend)
{
	EACH(i, p.count)
	{
		float velocity = p.momentum * p.velocity[i] + p.scale * p.gradient[i];

		p.velocity[i] = velocity;
		p.weight[i] -= p.rate * velocity;
	}
}

/* ---- convolutions --------------------------------------------------------------------------- */

/* x[rows][planes][side][side] to y[line][rows][side][side]; a line is (plane, down, right), the
 * last line holds ones */
KERNEL(unfold, train_cuda_planes)
{
	uint32_t image = p.side * p.side, line = p.rows * image, window = p.window * p.window;
	int32_t reach = (int32_t)p.window / 2, side = (int32_t)p.side;

	EACH_32(i, (p.planes * window + 1) * line)
	{
		uint32_t l = i / line, in_line = i - l * line, plane = l / window,
			 at = l - plane * window;
		uint32_t row = in_line / image, pixel = in_line - row * image;
		int32_t y = (int32_t)(pixel / p.side + at / p.window) - reach;
		int32_t x = (int32_t)(pixel % p.side + at % p.window) - reach;

		if (plane == p.planes)
			p.y[i] = 1.0f;
		else if (y < 0 || y >= side || x < 0 || x >= side)
			p.y[i] = 0.0f;
		else
			p.y[i] = p.x[(row * p.planes + plane) * image + (uint32_t)(y * side + x)];
	}
}

/* Adjoint of unfold: each pixel of x sums its copies. */
KERNEL(fold, train_cuda_planes)
{
	uint32_t image = p.side * p.side, line = p.rows * image, window = p.window * p.window;
	int32_t reach = (int32_t)p.window / 2, side = (int32_t)p.side;

	EACH_32(i, p.rows * p.planes * image)
	{
		uint32_t of = i / image, row = of / p.planes, plane = of - row * p.planes,
			 pixel = i - of * image;
		int32_t y = (int32_t)(pixel / p.side), x = (int32_t)(pixel % p.side);
		const float *from = p.y + plane * window * line + row * image;
		float sum = 0.0f;

		for (int32_t down = -reach; down <= reach; down++)
			for (int32_t right = -reach; right <= reach; right++, from += line)
				if (y >= down && y - down < side && x >= right && x - right < side)
					sum += from[(y - down) * side + x - right];
		p.x[i] = sum;
	}
}

/* Max pooling with ReLU: from y[planes][rows][side][side] to x[rows][planes][side / 2][side / 2] */
KERNEL(pool, train_cuda_planes)
{
	uint32_t half = p.side / 2, image = half * half;

	EACH_32(i, p.rows * p.planes * image)
	{
		uint32_t of = i / image, row = of / p.planes, plane = of - row * p.planes,
			 j = i - of * image;
		const float *at = p.y + (plane * p.rows + row) * p.side * p.side +
				  j / half * 2 * p.side + j % half * 2;
		float best = at[0];
		uint8_t argmax = 0;

		for (uint8_t k = 1; k < 4; k++) {
			float value = at[k / 2 * p.side + k % 2];

			argmax = value > best ? k : argmax;
			best = value > best ? value : best;
		}
		p.argmax[i] = best > 0.0f ? argmax : 4;
		p.x[i] = best > 0.0f ? best : 0.0f;
	}
}

KERNEL(pool_back, train_cuda_planes)
{
	uint32_t half = p.side / 2, image = p.side * p.side;

	EACH_32(i, p.rows * p.planes * image)
	{
		uint32_t of = i / image, plane = of / p.rows, row = of - plane * p.rows,
			 pixel = i - of * image;
		uint32_t y = pixel / p.side, x = pixel - y * p.side;
		uint32_t from = (row * p.planes + plane) * half * half + y / 2 * half + x / 2;

		p.y[i] = p.argmax[from] == y % 2 * 2 + x % 2 ? p.x[from] : 0.0f;
	}
}

/* ---- loss ----------------------------------------------------------------------------------- */

KERNEL(loss, train_cuda_loss)
{
	EACH(row, p.rows)
	{
		float *logits = p.logits + row * p.classes;

		p.losses[row] = train_cross_entropy(logits, p.classes, p.labels[row]);
		train_softmax(logits, p.classes);
		logits[p.labels[row]] -= 1.0f;
	}
}

KERNEL(total, train_cuda_total)
{
	EACH(i, 1)
	{
		double sum = 0.0;

		for (uint64_t row = 0; row < p.rows; row++)
			sum += p.losses[row];
		p.loss[i] = (float)sum;
	}
}

/* ---- a matrix product: each element one chain, as in gemm.c --------------------------------- */

KERNEL(gemm, train_cuda_gemm)
{
	EACH(i, p.m * p.n)
	{
		const float *a = p.a + i / p.n * p.a_row, *b = p.b + i % p.n * p.b_column;
		float sum = 0.0f;

		for (uint64_t k = 0; k < p.k; k++)
			sum = FMA(a[k * p.a_column], b[k * p.b_row], sum);
		p.c[i / p.n * p.ldc + i % p.n] = sum;
	}
}
