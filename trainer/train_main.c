/* train_main.c - tutti-train; job.c has all of it */
#include "trainer/job.h"

int main(int argc, char **argv)
{
	return train_job_run(argc, argv, NULL);
}
