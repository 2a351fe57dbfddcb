/* compress.c - the table of compressors, and error feedback (compress.h) */
#include "trainer/strategy/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct train_compressor_ops *const train_compressors[] = {
	&train_compress_fp16, &train_compress_bf16,     &train_compress_int8,
	&train_compress_topk, &train_compress_powersgd, NULL
};

static int parse(struct train_compressor *c, const char *text)
{
	size_t bytes = strcspn(text, ":");
	char *end = "";

	for (const struct train_compressor_ops *const *at = train_compressors; *at; at++)
		if (strlen((*at)->name) == bytes && !memcmp((*at)->name, text, bytes))
			c->ops = *at;
	if (!c->ops)
		return train_fail(
			TRAIN_USAGE,
			"--compress %s: there is no such compressor; use fp16, bf16, int8, "
			"topk:0.01 or powersgd:4",
			text);
	if (text[bytes] && c->ops->most <= 0)
		return train_fail(TRAIN_USAGE, "--compress %s: %s takes no number; use %s", text,
				  c->ops->name, c->ops->name);
	c->number = text[bytes] ? strtod(text + bytes + 1, &end) : c->ops->fallback;
	if (*end || end == text + bytes + 1 || !(c->number >= c->ops->least) ||
	    c->number > c->ops->most || (c->ops->whole && c->number != floor(c->number)))
		return train_fail(TRAIN_USAGE,
				  "--compress %s: not %s; use %s from %g to %g, such as %s:%g",
				  text, c->ops->syntax, c->ops->whole ? "an integer" : "a number",
				  c->ops->least, c->ops->most, c->ops->name, c->ops->fallback);
	return TRAIN_OK;
}

int train_compress_check(const struct train_config *config)
{
	struct train_compressor c = { 0 };
	int rc = parse(&c, config->compress);

	if (!rc && (config->zero || config->mesh))
		rc = train_fail(TRAIN_USAGE,
				"--compress %s: each rank needs all gradients; omit --zero and "
				"--mesh",
				config->compress);
	if (!rc && config->canonical != TRAIN_CANONICAL_OFF)
		rc = train_fail(TRAIN_USAGE,
				"--compress %s: compressed gradients are not sums over leaves; use "
				"--canonical off",
				config->compress);
	return rc;
}

int train_compressor_open(struct train_compressor *c, struct train_rank *t)
{
	int rc = parse(c, t->config->compress);
	bool momentum = !rc && c->ops->own_momentum && t->config->optimizer == TRAIN_SGD;

	if (rc)
		return rc;
	c->t = t;
	c->error = calloc(t->model.parameters, sizeof(*c->error));
	if (momentum)
		c->velocity = calloc(t->model.parameters, sizeof(*c->velocity));
	if (!c->error || (momentum && !c->velocity))
		return train_fail(TRAIN_FAILED, "no memory for the errors of %zu gradients",
				  t->model.parameters);
	return c->ops->open(c);
}

void train_compressor_close(struct train_compressor *c)
{
	if (c->ops)
		c->ops->close(c);
	free(c->velocity);
	free(c->error);
}

int train_compressor_sum(struct train_compressor *c, float *v)
{
	float momentum = (float)c->t->config->momentum;

	for (size_t i = 0; i < c->t->model.parameters; i++) {
		if (c->velocity)
			v[i] = c->velocity[i] = momentum * c->velocity[i] + v[i];
		v[i] += c->error[i];
	}
	return c->ops->sum(c, v);
}
