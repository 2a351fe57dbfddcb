/* device.c - the table of devices (device.h) */
#include "device.h"

#include "fail.h"

#include <string.h>

const struct tt_device_ops *const tt_devices[] = { &tt_device_cpu, &tt_device_blas, &tt_device_sim,
						    NULL };

int tt_device_open(struct tt_device *d, const char *name)
{
	for (const struct tt_device_ops *const *at = tt_devices; *at; at++) {
		if (strcmp((*at)->name, name))
			continue;
		*d = (struct tt_device){ .ops = *at };
		return d->ops->open(d);
	}
	return tt_train_fail(TT_TRAIN_USAGE,
			     "--device %s: there is no such device; --help lists them", name);
}

void tt_device_close(struct tt_device *d)
{
	if (d->ops)
		d->ops->close(d);
	d->ops = NULL;
}
