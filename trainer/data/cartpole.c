/* cartpole.c - the motion of a pole on a cart (cartpole.h) */
#include "trainer/data/cartpole.h"

#include "trainer/base/rng.h"

#define GRAVITY 9.8
#define CART 1.0   /* kg */
#define POLE 0.1   /* kg */
#define LENGTH 0.5 /* m, from the pivot to the center of the pole */
#define FORCE 10.0 /* N */
#define TICK 0.02  /* s */
#define FAR 2.4
#define STEEP 0.20943951023931953 /* 12 degrees */

/* Series, for the same bits with every C library: the error is below 1e-13 for |x| < 0.5. */
static double sine(double x)
{
	double q = x * x;

	return x * (1.0 - q / 6.0 * (1.0 - q / 20.0 * (1.0 - q / 42.0 * (1.0 - q / 72.0))));
}

static double cosine(double x)
{
	double q = x * x;

	return 1.0 -
	       q / 2.0 * (1.0 - q / 12.0 * (1.0 - q / 30.0 * (1.0 - q / 56.0 * (1.0 - q / 90.0))));
}

void train_cartpole_begin(struct train_cartpole *c, const uint32_t random[4])
{
	*c = (struct train_cartpole){
		.x = 0.05 * (double)train_rng_unit(random[0]),
		.speed = 0.05 * (double)train_rng_unit(random[1]),
		.angle = 0.05 * (double)train_rng_unit(random[2]),
		.spin = 0.05 * (double)train_rng_unit(random[3]),
	};
}

void train_cartpole_observe(const struct train_cartpole *c, float ret_x[TRAIN_CARTPOLE_INPUTS])
{
	ret_x[0] = (float)(c->x / FAR);
	ret_x[1] = (float)(c->speed / 2.0);
	ret_x[2] = (float)(c->angle / STEEP);
	ret_x[3] = (float)(c->spin / 2.0);
}

void train_cartpole_push(struct train_cartpole *c, unsigned action)
{
	double sin = sine(c->angle), cos = cosine(c->angle);
	double push = (action ? FORCE : -FORCE) + POLE * LENGTH * c->spin * c->spin * sin;
	double turn = (GRAVITY * sin - cos * push / (CART + POLE)) /
		      (LENGTH * (4.0 / 3.0 - POLE * cos * cos / (CART + POLE)));
	double pull = (push - POLE * LENGTH * turn * cos) / (CART + POLE);

	c->x += TICK * c->speed;
	c->speed += TICK * pull;
	c->angle += TICK * c->spin;
	c->spin += TICK * turn;
	c->frames++;
}

bool train_cartpole_failed(const struct train_cartpole *c)
{
	return c->x < -FAR || c->x > FAR || c->angle < -STEEP || c->angle > STEEP;
}
