/* device.c - the table of devices (device.h) */
#include "trainer/device/device.h"

#include "trainer/base/fail.h"

#include <string.h>

const struct train_device_ops *const train_devices[] = { &train_device_cpu, &train_device_cpu_blas,
							 &train_device_cuda, &train_device_sim,
							 NULL };

const struct train_device_ops *train_device_find(const char *name)
{
	for (const struct train_device_ops *const *at = train_devices; *at; at++) {
		size_t length = strlen((*at)->name);

		if (!strncmp((*at)->name, name, length) &&
		    (!name[length] || (name[length] == ':' && (*at)->select)))
			return *at;
	}
	train_fail(TRAIN_USAGE, "--device %s: there is no such device; --help lists them", name);
	return NULL;
}

int train_device_open(struct train_device *d, const char *name, bool canonical)
{
	const struct train_device_ops *ops = train_device_find(name);

	if (!ops)
		return TRAIN_USAGE;
	*d = (struct train_device){ .ops = ops, .canonical = canonical };
	return ops->open(d);
}

void train_device_close(struct train_device *d)
{
	if (d->ops)
		d->ops->close(d);
	d->ops = NULL;
}
