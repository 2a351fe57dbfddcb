/* tutti_train.c - the function of libtutti-train.so (tutti_train.h) */
#include "trainer/tutti_train.h"

#include "trainer/job.h"

int tuttiTrain(int argc, char **argv, const tuttiTrainModel_t *model)
{
	return train_job_run(argc, argv, model);
}
