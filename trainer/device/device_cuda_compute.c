/* device_cuda_compute.c - device cuda's operations: kernels and cuBLAS's matrix products (device.h,
 * device_cuda.h) */
#include "trainer/device/device_cuda.h"

#include <stdio.h>
#include <string.h>

/* Launches a kernel with one thread per result; larger counts loop in the kernel. */
static void launch(struct train_device *d, enum train_cuda_kernel number, size_t count,
		   void *params)
{
	struct train_cuda_state *c = d->state;
	size_t blocks = (count + TRAIN_CUDA_THREADS - 1) / TRAIN_CUDA_THREADS;
	void *list[] = { params };

	if (!count || c->error[0])
		return;
	train_cuda_check(c,
			 c->cu->launch(c->kernel[number],
				       blocks < c->blocks ? (unsigned)blocks : c->blocks, 1, 1,
				       TRAIN_CUDA_THREADS, 1, 1, 0, c->stream, list, NULL),
			 "launch a kernel");
}

void train_cuda_op_gather(struct train_device *d, const uint8_t *images, const uint32_t *samples,
			  size_t rows, size_t pixels, float mean, float *x)
{
	struct train_cuda_state *c = d->state;
	tt_cuptr at = train_cuda_reserve(d, &c->images, rows * pixels);
	struct train_cuda_gather p = { (const uint8_t *)(uintptr_t)at, x, rows * pixels, mean };
	size_t rows_each = TRAIN_CUDA_BOUNCE_BYTES / pixels ? TRAIN_CUDA_BOUNCE_BYTES / pixels : 1;

	for (size_t row = 0, n; at && row < rows; row += n) {
		char *bounce;

		n = rows - row < rows_each ? rows - row : rows_each;
		if (pixels > TRAIN_CUDA_BOUNCE_BYTES) {
			train_cuda_copy_in(d, at + row * pixels,
					   (const char *)images + samples[row] * pixels, pixels);
			continue;
		}
		bounce = train_cuda_bounce_alloc(d, n * pixels);
		for (size_t i = 0; i < n; i++)
			memcpy(bounce + i * pixels, images + samples[row + i] * pixels, pixels);
		train_cuda_check(c,
				 c->cu->htod_async(at + row * pixels, bounce, n * pixels,
						   c->stream),
				 "copy images to the GPU");
	}
	launch(d, KERNEL_gather, rows * pixels, &p);
}

/* Row-major product by the column-major cuBLAS: c^T = b^T a^T. */
static void by_blas(struct train_cuda_state *c, size_t m, size_t n, size_t k, struct train_matrix a,
		    struct train_matrix b, float *to, size_t ldc)
{
	const float one = 1.0f, zero = 0.0f;
	int status;

	if (c->error[0])
		return;
	status = c->blas.sgemm(c->handle,
			       b.transposed ? TRAIN_CUBLAS_TRANSPOSED : TRAIN_CUBLAS_AS_IS,
			       a.transposed ? TRAIN_CUBLAS_TRANSPOSED : TRAIN_CUBLAS_AS_IS, (int)n,
			       (int)m, (int)k, &one, b.at, (int)b.stride, a.at, (int)a.stride,
			       &zero, to, (int)ldc);
	if (status)
		snprintf(c->error, sizeof(c->error),
			 "device cuda: cuBLAS fails with status %d in a product of %zu x %zu x %zu",
			 status, m, n, k);
}

void train_cuda_op_gemm(struct train_device *d, size_t m, size_t n, size_t k, struct train_matrix a,
			struct train_matrix b, float *to, size_t ldc)
{
	struct train_cuda_state *c = d->state;
	struct train_cuda_gemm p = {
		.a = a.at,
		.b = b.at,
		.c = to,
		.m = m,
		.n = n,
		.k = k,
		.ldc = ldc,
		.a_row = a.transposed ? 1 : a.stride,
		.a_column = a.transposed ? a.stride : 1,
		.b_row = b.transposed ? 1 : b.stride,
		.b_column = b.transposed ? b.stride : 1,
	};

	if (c->handle && m && n && k)
		by_blas(c, m, n, k, a, b, to, ldc);
	else
		launch(d, KERNEL_gemm, m * n, &p);
}

void train_cuda_op_bias(struct train_device *d, size_t rows, size_t n, const float *bias, bool relu,
			float *y)
{
	launch(d, KERNEL_bias, rows * n, &(struct train_cuda_bias){ bias, y, rows, n, relu });
}

void train_cuda_op_bias_back(struct train_device *d, size_t rows, size_t n, const float *dy,
			     float *dbias)
{
	launch(d, KERNEL_bias_back, n, &(struct train_cuda_bias_back){ dy, dbias, rows, n });
}

void train_cuda_op_add(struct train_device *d, size_t count, const float *from, float *to)
{
	launch(d, KERNEL_add, count, &(struct train_cuda_add){ from, to, count });
}

void train_cuda_op_blend(struct train_device *d, size_t count, float keep, float take,
			 const float *from, float *to)
{
	launch(d, KERNEL_blend, count, &(struct train_cuda_blend){ from, to, count, keep, take });
}

static struct train_cuda_planes planes(struct train_planes p, size_t window, const float *x,
				       const float *y, const uint8_t *argmax)
{
	return (struct train_cuda_planes){
		(float *)(uintptr_t)x, (float *)(uintptr_t)y, (uint8_t *)(uintptr_t)argmax,
		(uint32_t)p.rows,      (uint32_t)p.planes,    (uint32_t)p.side,
		(uint32_t)window
	};
}

/* The kernels use 32-bit indices. */
static void launch_planes(struct train_device *d, enum train_cuda_kernel number, size_t count,
			  struct train_cuda_planes params)
{
	struct train_cuda_state *c = d->state;

	if (count > UINT32_MAX && !c->error[0])
		snprintf(c->error, sizeof(c->error),
			 "device cuda: %zu elements of a convolution at once; use a smaller --leaf",
			 count);
	launch(d, number, count, &params);
}

void train_cuda_op_unfold(struct train_device *d, struct train_planes p, size_t window,
			  const float *x, float *patches)
{
	launch_planes(d, KERNEL_unfold, (p.planes * window * window + 1) * p.rows * p.side * p.side,
		      planes(p, window, x, patches, NULL));
}

void train_cuda_op_fold(struct train_device *d, struct train_planes p, size_t window,
			const float *patches, float *x)
{
	launch_planes(d, KERNEL_fold, p.rows * p.planes * p.side * p.side,
		      planes(p, window, x, patches, NULL));
}

void train_cuda_op_pool(struct train_device *d, struct train_planes p, const float *y, float *x,
			uint8_t *argmax)
{
	launch_planes(d, KERNEL_pool, p.rows * p.planes * (p.side / 2) * (p.side / 2),
		      planes(p, 0, x, y, argmax));
}

void train_cuda_op_pool_back(struct train_device *d, struct train_planes p, const float *dx,
			     const uint8_t *argmax, float *dy)
{
	launch_planes(d, KERNEL_pool_back, p.rows * p.planes * p.side * p.side,
		      planes(p, 0, dx, dy, argmax));
}

void train_cuda_op_relu_back(struct train_device *d, size_t count, const float *y, float *dy)
{
	launch(d, KERNEL_relu_back, count, &(struct train_cuda_relu_back){ y, dy, count });
}

void train_cuda_op_loss(struct train_device *d, size_t rows, size_t classes, const uint8_t *labels,
			float *logits, float *loss)
{
	struct train_cuda_state *c = d->state;
	tt_cuptr at = train_cuda_reserve(d, &c->labels, rows),
		 losses = train_cuda_reserve(d, &c->losses, rows * sizeof(double));
	double *each = (double *)(uintptr_t)losses;
	struct train_cuda_loss p = { (const uint8_t *)(uintptr_t)at, logits, each, rows, classes };

	if (rows && !c->error[0])
		train_cuda_copy_in(d, at, (const char *)labels, rows);
	launch(d, KERNEL_loss, rows, &p);
	launch(d, KERNEL_total, 1, &(struct train_cuda_total){ each, loss, rows });
}

void train_cuda_op_descend(struct train_device *d, size_t count, float scale, float rate,
			   float momentum, const float *gradient, float *velocity, float *weight)
{
	launch(d, KERNEL_descend, count,
	       &(struct train_cuda_descend){ gradient, velocity, weight, count, scale, rate,
					     momentum });
}
