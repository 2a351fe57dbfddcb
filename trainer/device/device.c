/* device.c - the table of devices (device.h) */
#include "trainer/device/device.h"

#include "trainer/fail.h"

#include <string.h>

const struct tt_device_ops *const tt_devices[] = { &tt_device_cpu, &tt_device_blas, &tt_device_cuda,
						    &tt_device_sim, NULL };

const struct tt_device_ops *tt_device_find(const char *name)
{
	for (const struct tt_device_ops *const *at = tt_devices; *at; at++) {
		size_t length = strlen((*at)->name);

		if (!strncmp((*at)->name, name, length) &&
		    (!name[length] || (name[length] == ':' && (*at)->take)))
			return *at;
	}
	tt_train_fail(TT_TRAIN_USAGE, "--device %s: there is no such device; --help lists them",
		      name);
	return NULL;
}

int tt_device_open(struct tt_device *d, const char *name, bool canonical)
{
	const struct tt_device_ops *ops = tt_device_find(name);

	if (!ops)
		return TT_TRAIN_USAGE;
	*d = (struct tt_device){ .ops = ops, .canonical = canonical };
	return ops->open(d);
}

void tt_device_close(struct tt_device *d)
{
	if (d->ops)
		d->ops->close(d);
	d->ops = NULL;
}
