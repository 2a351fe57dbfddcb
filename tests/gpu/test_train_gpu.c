/*
 * test_train_gpu.c - the trainer's device cuda: a step of every model gives the bits of --device cpu
 * (--canonical), or nearly equal values
 *
 * On the fake for a GPU (tests/fakes/cuda/), or with TUTTI_TEST_GPU set on a GPU. A plain main that
 * prints TAP, for machines without Criterion.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/harness_cuda.h"
#include "trainer/device/device.h"
#include "trainer/base/fail.h"
#include "trainer/model/model.h"
#include "trainer/base/rng.h"

enum { CLASSES = 10, OPERAND = 1 << 14 }; /* floats of an operand */

static int points, failures;

static void point(bool holds, const char *what, const char *which)
{
	printf("%s %d - %s: %s\n", holds ? "ok" : "not ok", ++points, which, what);
	failures += !holds;
}

/* Loads the fake's cuBLAS, so the trainer's loader finds cuBLAS by name. */
static void load_blas(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	if (n < 0 || getenv("TUTTI_TEST_GPU"))
		return;
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/../fakes/cuda/libcublas.so.13");
	if (!dlopen(path, RTLD_NOW | RTLD_GLOBAL))
		fprintf(stderr, "%s\n", dlerror());
}

/* ---- a step of a model ----------------------------------------------------------------------- */

struct step {
	const char *model;
	size_t pixels, rows;
};

/* Results of a step, in host memory */
struct train_outcome {
	size_t parameters;
	float loss, *weights, *velocity;
};

static void *upload(struct train_device *d, const float *from, size_t count)
{
	void *to = d->ops->alloc(d, count * sizeof(float));

	if (from)
		d->ops->put(d, to, from, count * sizeof(float));
	return to;
}

static void compute(struct train_device *d, struct train_model *m, const struct step *s,
		    const float *start, struct train_outcome *o)
{
	size_t count = m->parameters, pixels = s->rows * s->pixels;
	float *x = upload(d, NULL, pixels), *loss = upload(d, NULL, 1);
	float *weights = upload(d, start, count), *velocity = upload(d, start, count),
	      *gradients = upload(d, NULL, count), *logits;
	uint8_t *images = malloc(2 * pixels), *labels = malloc(s->rows);
	uint32_t *samples = malloc(s->rows * sizeof(*samples));

	for (size_t i = 0; i < 2 * pixels; i++)
		images[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t i = 0; i < s->rows; i++) {
		samples[i] = (uint32_t)(2 * s->rows - 1 - i);
		labels[i] = (uint8_t)(i * 7 % CLASSES);
	}
	d->ops->gather(d, images, samples, s->rows, s->pixels, 0.29f, x);
	logits = train_model_forward(m, weights, x, s->rows);
	d->ops->loss(d, s->rows, CLASSES, labels, logits, loss);
	train_model_backward(m, weights, logits, NULL, gradients, NULL);
	d->ops->descend(d, count, 1.0f / (float)s->rows, 0.05f, 0.9f, gradients, velocity, weights);
	d->ops->get(d, &o->loss, loss, sizeof(float));
	d->ops->get(d, o->weights, weights, count * sizeof(float));
	d->ops->get(d, o->velocity, velocity, count * sizeof(float));
	d->ops->free(d, x), d->ops->free(d, loss), d->ops->free(d, weights),
		d->ops->free(d, velocity), d->ops->free(d, gradients);
	free(images), free(labels), free(samples);
}

/* Returns false after printing an error: the device cannot be opened. */
static bool take_step(const char *device, bool canonical, const struct step *s,
		      struct train_outcome *o)
{
	struct train_model_size size = {
		.inputs = s->pixels, .classes = CLASSES, .max_rows = s->rows, .leaf = 8
	};
	struct train_device d;
	struct train_model m;
	float *start;
	bool ok;

	if (train_device_open(&d, device, canonical) || train_model_open(&m, s->model, &d, &size)) {
		printf("# %s\n", train_error());
		return false;
	}
	*o = (struct train_outcome){ .parameters = m.parameters };
	o->weights = calloc(m.parameters, sizeof(float));
	o->velocity = calloc(m.parameters, sizeof(float));
	start = malloc(m.parameters * sizeof(float));
	train_model_init(&m, 17, start);
	compute(&d, &m, s, start, o);
	ok = !train_device_sync(&d);
	if (!ok)
		printf("# %s\n", train_error());
	free(start);
	train_model_close(&m);
	train_device_close(&d);
	return ok;
}

static bool same_bits(const struct train_outcome *a, const struct train_outcome *b)
{
	size_t bytes = a->parameters * sizeof(float);

	return !memcmp(&a->loss, &b->loss, sizeof(float)) &&
	       !memcmp(a->weights, b->weights, bytes) && !memcmp(a->velocity, b->velocity, bytes);
}

static bool nearly(const struct train_outcome *a, const struct train_outcome *b)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < a->parameters; i++) {
		off += pow((double)a->velocity[i] - b->velocity[i], 2);
		size += pow(a->velocity[i], 2);
	}
	return fabs((double)a->loss - b->loss) <= 1e-4 * fabs((double)a->loss) &&
	       sqrt(off) <= 1e-4 * sqrt(size) && size > 0;
}

static void release(struct train_outcome *o)
{
	free(o->weights);
	free(o->velocity);
}

static void try_step(const struct step *s)
{
	struct train_outcome cpu, gpu;
	char which[80];
	bool ran;

	snprintf(which, sizeof(which), "%s, %zu images of %zu pixels", s->model, s->rows,
		 s->pixels);
	if (!take_step("cpu", true, s, &cpu)) {
		point(false, "device cpu runs a step", which);
		return;
	}
	ran = take_step("cuda", true, s, &gpu);
	point(ran && same_bits(&cpu, &gpu), "--canonical gives the bits of device cpu", which);
	if (ran)
		release(&gpu);
	ran = take_step("cuda", false, s, &gpu);
	point(ran && nearly(&cpu, &gpu), "cuBLAS gives nearly equal values", which);
	if (ran)
		release(&gpu);
	release(&cpu);
}

/* ---- matrix products ------------------------------------------------------------------------- */

static float unit(uint64_t index)
{
	uint32_t random[4];

	train_rng(99, TRAIN_RNG_WEIGHTS, 5, index, random);
	return train_rng_unit(random[0]);
}

/* c[m x n] in rows of n + 3 elements, with every layout (plain, transposed) of both operands */
static void try_products(bool canonical)
{
	static const size_t sizes[][3] = {
		{ 1, 1, 1 }, { 3, 5, 7 }, { 33, 10, 65 }, { 40, 130, 2 }, { 4, 6, 0 }
	};
	static float numbers[2 * OPERAND], host[45 * 140], want[45 * 140];
	struct train_device d, cpu;
	bool right = !train_device_open(&d, "cuda", canonical) &&
		     !train_device_open(&cpu, "cpu", true);
	float *in, *out;

	if (!right) {
		point(false, "matrix products of all layouts", train_error());
		return;
	}
	for (size_t i = 0; i < 2 * OPERAND; i++)
		numbers[i] = unit(i);
	in = upload(&d, numbers, 2 * OPERAND);
	out = upload(&d, NULL, 45 * 140);
	for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(*sizes); i++) {
		const size_t *z = sizes[i / 4], m = z[0], n = z[1], k = z[2];
		bool transposed_a = i & 1, transposed_b = i & 2;
		size_t a_stride = (transposed_a ? m : k) + 2, b_stride = (transposed_b ? k : n) + 1;
		struct train_matrix a = { in, a_stride, transposed_a },
				    b = { in + OPERAND, b_stride, transposed_b };

		d.ops->gemm(&d, m, n, k, a, b, out, n + 3);
		d.ops->get(&d, host, out, sizeof(host));
		a.at = numbers, b.at = numbers + OPERAND;
		cpu.ops->gemm(&cpu, m, n, k, a, b, want, n + 3);
		for (size_t j = 0; j < m * n; j++) {
			float x = host[j / n * (n + 3) + j % n], y = want[j / n * (n + 3) + j % n];

			right &= canonical ? x == y : fabsf(x - y) <= 1e-4f;
		}
	}
	point(right && !train_device_sync(&d), "matrix products of all layouts",
	      canonical ? "own kernel" : "cuBLAS");
	d.ops->free(&d, in), d.ops->free(&d, out);
	train_device_close(&cpu);
	train_device_close(&d);
}

/* ---- element-wise operations ----------------------------------------------------------------- */

/* also from == NULL, and source and target at one address */
static void blend_and_copy(struct train_device *d, float *from, float *to, size_t count)
{
	d->ops->blend(d, count, 1.0f / 3.0f, -0.7f, from, to);
	d->ops->blend(d, count - 1, 0.9f, 0.0f, NULL, to + 1);
	d->ops->copy(d, from + count / 2, to, count / 4 * sizeof(float));
	d->ops->copy(d, to, to, count * sizeof(float));
	d->ops->add(d, count, from, to);
}

static void try_elementwise(void)
{
	enum { COUNT = 3001 };
	static float numbers[2 * COUNT], got[2 * COUNT];
	struct train_device d;
	float *there;

	if (train_device_open(&d, "cuda", true)) {
		point(false, "blend, copy, add", train_error());
		return;
	}
	for (size_t i = 0; i < 2 * COUNT; i++)
		numbers[i] = unit(i);
	there = upload(&d, numbers, 2 * COUNT);
	blend_and_copy(&d, there, there + COUNT, COUNT);
	d.ops->get(&d, got, there, sizeof(got));
	blend_and_copy(&(struct train_device){ .ops = &train_device_cpu }, numbers, numbers + COUNT,
		       COUNT);
	point(!train_device_sync(&d) && !memcmp(got, numbers, sizeof(got)),
	      "the bits are those of device cpu", "blend, copy, add");
	d.ops->free(&d, there);
	train_device_close(&d);
}

int main(void)
{
	static const struct step steps[] = {
		{ "linear", 784, 100 }, { "mlp:9", 16, 6 }, { "mlp:40,7", 196, 33 },
		{ "cnn", 16, 6 },       { "cnn", 784, 11 }, { "mlp:5", 16, 1 },
	};

	if (!harness_cuda()) {
		printf("1..0 # SKIP no CUDA driver\n");
		return 0;
	}
	load_blas();
	if (train_device_find("cuda")->select("cuda:0", 0)) {
		printf("not ok 1 - %s\n1..1\n", train_error());
		return 1;
	}
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		try_step(&steps[i]);
	try_products(true);
	try_products(false);
	try_elementwise();
	printf("1..%d\n", points);
	return failures != 0;
}
