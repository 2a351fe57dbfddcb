/* ps_handout.c - a parameter server hands out shares of batches (ps_server.h) */
#include "trainer/strategy/ps_server.h"

#include "trainer/rank/due_steps.h"

int train_ps_devices(const struct train_ps_server *s)
{
	return s->ps->rule.devices ? s->ps->rule.devices : 1;
}

uint64_t train_ps_shares(const struct train_ps_server *s)
{
	return (uint64_t)(s->workers / train_ps_devices(s));
}

uint64_t train_ps_warm_pushes(const struct train_ps_server *s)
{
	uint64_t steps = (uint64_t)s->t->config->warm_start, done = s->t->first_step;

	return steps > done ? (steps - done) * train_ps_shares(s) : 0;
}

/* In a warm start the first live worker alone gets shares. The others get the answers that a pause or the end gives. */
static bool must_wait(const struct train_ps_server *s, int worker)
{
	uint64_t n = train_ps_shares(s);
	/* downpour pushes several shares at once */
	uint64_t done = s->ps->rule.drop ? s->stats.pushes : s->handed - s->t->first_step * n;
	int first = 0;

	while (first < worker && s->client[first].gone)
		first++;
	return worker != first && done < train_ps_warm_pushes(s) && s->handed != s->pause * n &&
	       !s->stopping;
}

/* Hands out the next share. At a pause the last shares are computed first: no worker gets another
 * one before all have settled. */
static int hand_out(struct train_ps_server *s, int worker, bool stop)
{
	uint64_t n = train_ps_shares(s), steps = train_steps(s->t);
	struct train_handout h = { .shares = n, .handed = s->handed - s->t->first_step * n };

	s->stopping |= stop;
	if (s->handed == s->pause * n && s->pause < steps) {
		h.kind = TRAIN_HANDOUT_PAUSE;
		h.step = s->pause;
	} else if (s->handed == s->pause * n || s->stopping) {
		h.kind = TRAIN_HANDOUT_END;
		h.step = (s->handed + n - 1) / n;
	} else {
		h.step = s->handed / n + 1;
		h.share = s->handed++ % n;
		h.handed++;
	}
	return train_ps_reply(s, worker, TRAIN_PS_ASK, 0, &h, sizeof(h));
}

int train_ps_answer_questions(struct train_ps_server *s)
{
	int rc = TRAIN_OK;

	for (int w = 0; w < s->workers && !rc; w++) {
		struct train_ps_client *c = &s->client[w];

		s->stopping |= c->asks && c->asks_stop;
		if (!c->asks || c->gone || must_wait(s, w))
			continue;
		c->asks = false;
		rc = hand_out(s, w, c->asks_stop);
	}
	return rc;
}
