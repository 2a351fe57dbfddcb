/* exact.c - exp, log, softmax and cross-entropy, bit-reproducible with every C library (exact.h) */
#include "trainer/device/exact.h"

#include <stdint.h>
#include <string.h>

TRAIN_EXACT_FN double train_exact_exp(double x)
{
	static const double inverse_factorial[] = {
		1.0,
		1.0,
		1.0 / 2,
		1.0 / 6,
		1.0 / 24,
		1.0 / 120,
		1.0 / 720,
		1.0 / 5040,
		1.0 / 40320,
		1.0 / 362880,
		1.0 / 3628800,
		1.0 / 39916800,
		1.0 / 479001600,
	};
	const double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;
	double r, sum = 1.0 / 6227020800, two_to_k;
	uint64_t bits;
	int k;

	if (x != x || x < -700.0)
		return x != x ? x : 0.0;
	x = x < 700.0 ? x : 700.0;
	k = (int)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
	r = (x - k * ln2_high) - k * ln2_low;
	for (int i = 12; i >= 0; i--) /* Taylor's series, |r| <= 0.35 */
		sum = sum * r + inverse_factorial[i];
	bits = (uint64_t)(k + 1023) << 52;
	memcpy(&two_to_k, &bits, sizeof(bits));
	return sum * two_to_k;
}

TRAIN_EXACT_FN double train_exact_log(double x)
{
	double s, s2, sum = 0.0;
	uint64_t bits;
	int k;

	if (x != x)
		return x;
	memcpy(&bits, &x, sizeof(bits));
	k = (int)(bits >> 52) - 1023;
	bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52;
	memcpy(&x, &bits, sizeof(bits));
	if (x > 0x1.6a09e667f3bcdp+0) {
		x *= 0.5;
		k++;
	}
	s = (x - 1.0) / (x + 1.0); /* ln x = 2 (s + s^3/3 + s^5/5 ...), |s| <= 0.172 */
	s2 = s * s;
	for (int i = 21; i > 0; i -= 2)
		sum = sum * s2 + 1.0 / i;
	return k * 0x1.62e42fefa39efp-1 + 2.0 * s * sum;
}

static TRAIN_EXACT_FN double highest(const float *logits, size_t classes)
{
	double high = logits[0];

	for (size_t i = 1; i < classes; i++)
		high = logits[i] > high ? logits[i] : high;
	return high;
}

static TRAIN_EXACT_FN double sum_of_exp(const float *logits, size_t classes, double high)
{
	double sum = 0.0;

	for (size_t i = 0; i < classes; i++)
		sum += train_exact_exp(logits[i] - high);
	return sum;
}

TRAIN_EXACT_FN double train_cross_entropy(const float *logits, size_t classes, size_t label)
{
	double high = highest(logits, classes);

	return train_exact_log(sum_of_exp(logits, classes, high)) - (logits[label] - high);
}

TRAIN_EXACT_FN void train_softmax(float *logits, size_t classes)
{
	double high = highest(logits, classes), sum = sum_of_exp(logits, classes, high);

	for (size_t i = 0; i < classes; i++)
		logits[i] = (float)(train_exact_exp(logits[i] - high) / sum);
}

TRAIN_EXACT_FN double train_softmax_loss(float *logits, size_t classes, size_t label)
{
	double high = highest(logits, classes), sum = 0.0, loss, e[256];

	for (size_t i = 0; i < classes; i++)
		e[i] = train_exact_exp(logits[i] - high);
	for (size_t i = 0; i < classes; i++)
		sum += e[i];
	loss = train_exact_log(sum) - (logits[label] - high);
	for (size_t i = 0; i < classes; i++)
		logits[i] = (float)(e[i] / sum);
	return loss;
}
